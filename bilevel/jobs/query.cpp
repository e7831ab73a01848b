#include "bilevel/jobs/query.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/genotype_lines.h"
#include "bilevel/nas/genotype.h"

namespace bilevel {

const Fields<QueryJobOptions>& QueryJobOptions::fields() {
  static const Fields<QueryJobOptions> table = [] {
    Fields<QueryJobOptions> f;
    f.add(
         "benchmark", [](auto& o) -> auto& { return o.benchmark; },
         "CSV table of NAS-Bench-201 or NAS-Bench-101 (told apart by the header); plain, .gz or .xz")
        .required()
        .first();
    f.add(
         "arch", [](auto& o) -> auto& { return o.genotypes; }, "genotype, as text or JSON; may be repeated")
        .repeated()
        .first();
    f.add(
         "file", [](auto& o) -> auto& { return o.file; }, "file of genotypes, one per line")
        .first();
    f.add(
         "space", [](auto& o) -> auto& { return o.space; },
         "search space of the genotypes; default: nasbench201 or nasbench1shot1-3, as the table")
        .first();
    f.add(
         "hash", [](auto& o) -> auto& { return o.hashes; }, "graph hash of NAS-Bench-101; may be repeated")
        .repeated();
    f.add(
         "best", [](auto& o) -> auto& { return o.best; }, "show the N best cells of the table")
        .in(at_least(1, bounds::width))
        .by_rule()
        .first();
    f.add(
         "by", [](auto& o) -> auto& { return o.by; },
         "accuracy column that ranks the best cells; default: the table's last")
        .first();
    f.add(
        "allow_missing", [](auto& o) -> auto& { return o.allow_missing; },
        "accept a NAS-Bench-201 table that lacks cells");
    return f;
  }();
  return table;
}

namespace {

void require_question(const QueryJobOptions& o) {
  const bool says_which = !o.genotypes.empty() || !o.file.empty() || !o.hashes.empty();
  if (o.best > 0 && says_which) {
    throw OptionError(fmt::format("{}: must be at least 1, and cannot be combined with {}, {} or {}",
                                  named("best", word_of(o.best)), named("arch"), named("file"),
                                  named("hash")));
  }
  if (!o.by.empty() && o.best < 1) {
    throw OptionError(
        fmt::format("{} selects the column for {}; give both", named("by"), named("best", "N")));
  }
  if (!says_which && o.best < 1) {
    throw OptionError(fmt::format("query: name the cells with {}, {}, {} or {}", named("arch"), named("file"),
                                  named("hash"), named("best", "N")));
  }
}

std::vector<nas::BenchmarkEntry> collect_entries(const QueryJobOptions& o, const nas::Benchmark& benchmark,
                                                 const nas::SearchSpace& space) {
  if (o.best > 0) return benchmark.ranking(o.by.empty() ? benchmark.accuracy_columns().back() : o.by, o.best);
  std::vector<nas::BenchmarkEntry> entries;
  const auto query = [&](std::string_view text) {
    entries.push_back(benchmark.query(space, nas::parse_genotype(space, text)));
  };
  for (const std::string& text : o.genotypes) query(text);
  if (!o.file.empty()) for_each_genotype(o.file, "a genotype", query);
  for (const std::string& hash : o.hashes) entries.push_back(benchmark.query_hash(hash));
  return entries;
}

Json columns_json(const nas::BenchmarkValues& values) {
  Json out = Json::object();
  for (const auto& [column, value] : values) {
    out[column] = column == "params" ? Json(static_cast<int64_t>(value)) : number(value);
  }
  return out;
}

Json entry_json(const nas::BenchmarkEntry& entry) {
  Json out = Json::object();
  if (!entry.genotype.empty()) out["genotype"] = entry.genotype;
  if (!entry.hash.empty()) {
    out["hash"] = entry.hash;
    out["graph"] = entry.graph;
  }
  out.update(columns_json(entry.values));
  out["regret"] = columns_json(entry.regret);
  return out;
}

}  // namespace

QueryJobResult run_query(QueryJobOptions o, RunContext& /*context*/) {
  OptionsView(o).require_all();
  require_question(o);
  // A wrong name is found before a table is read.
  if (!o.space.empty()) (void)nas::make_space(o.space);
  const nas::Benchmark benchmark = nas::Benchmark::load(o.benchmark, {.allow_missing = o.allow_missing});
  const nas::SearchSpace space = nas::make_space(o.space.empty() ? benchmark.default_space() : o.space);
  QueryJobResult result{.entries = collect_entries(o, benchmark, space)};
  Json rows = Json::array();
  for (const nas::BenchmarkEntry& entry : result.entries) {
    rows.push_back(entry_json(entry));
    for (const auto& [column, regret] : entry.regret) result.optima[column] = benchmark.optimum(column);
  }
  result.json = {{"benchmark", benchmark.name()},
                 {"file", o.benchmark},
                 {"space", space.name},
                 {"cells", benchmark.size()},
                 {"results", std::move(rows)}};
  return result;
}

}  // namespace bilevel
