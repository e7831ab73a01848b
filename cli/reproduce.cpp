#include "cli/reproduce.h"
#include "cli/progress.h"
#include "cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/data/write_file.h"
#include "cli/commands.h"
#include "cli/seed_list.h"

namespace bilevel::cli {
namespace {

struct Item {
  std::string name;
  std::string summary;
  Json (*run)(const ReproduceOptions&);
  bool searches = false;  // takes --benchmark, --epochs and --seeds
};

const std::vector<Item>& items() {
  static const std::vector<Item> list = {
      {"krmd:toy", "K-RMD figures 1-4: bound, descent, bias and convergence on the toy", reproduce_krmd_toy},
      {"krmd:table1", "K-RMD table 1: time and space of forward, reverse, checkpointed and truncated mode",
       reproduce_krmd_table1},
      {"krmd:table2", "K-RMD table 2 and appendix G.1: cleaning MNIST for K = 1 to 100 (needs mnist)",
       reproduce_krmd_table2},
      {"krmd:table3",
       "K-RMD table 3: interaction of classes for K = 1 to T (cifar10, cifar100 or fashion-mnist)",
       reproduce_krmd_table3},
      {"krmd:table4",
       "K-RMD table 4: one-shot Omniglot for K = 1 to T and a short horizon (omniglot or blobs)",
       reproduce_krmd_table4},
      {"krmd:figure5", "K-RMD figure 5: norm of the unrolled gradient along those runs (needs mnist)",
       reproduce_krmd_figure5},
      {"krmd:figure6",
       "K-RMD figure 6: loss, norm of the full gradient and cosine to it for K = 1 to T, on table 3's job",
       reproduce_krmd_figure6},
      {"krmd:figure7",
       "K-RMD figure 7: accuracy, cosine and relative error against K, with and without rho, on table 4's "
       "job",
       reproduce_krmd_figure7},
      {"fsla:figure1", "FSLA figure 1: errors of FSLA, NS, BP and CG on a quadratic", reproduce_fsla_figure1},
      {"fsla:cleaning", "FSLA figures 2-4: cleaning with a small CNN (needs mnist, fashion-mnist)",
       reproduce_fsla_cleaning},
      {"fsla:ablation", "FSLA figures 5-6: its rates and batch size (needs mnist)", reproduce_fsla_ablation},
      {"stocbio:cleaning", "stocBiO figure 4: stocBiO, BSA, TTSA, HOAG on noisy MNIST (needs mnist)",
       reproduce_stocbio_cleaning},
      {"stocbio:figure1",
       "stocBiO figure 1: AID-BiO, ITD-BiO, ANIL, MAML, accuracy against time (fc100, omniglot or blobs)",
       reproduce_stocbio_figure1},
      {"stocbio:figure5", "stocBiO figure 5: ITD-BiO and ANIL, T = 10 (miniimagenet, omniglot or blobs)",
       reproduce_stocbio_figure5},
      {"stocbio:figure6", "stocBiO figure 6: ITD-BiO and ANIL, T = 20 (fc100, omniglot or blobs)",
       reproduce_stocbio_figure6},
      {"stocbio:newsgroups", "stocBiO figures 2-3: per-feature regularisers on 20 Newsgroups",
       reproduce_newsgroups},
      {"idarts:table1", "iDARTS table 1: iDARTS, DARTS, GDAS, RandomNAS on NAS-Bench-201 (needs its table)",
       reproduce_idarts_table1, true},
      {"idarts:table2", "iDARTS table 2: the DARTS space, cells found and their counts",
       reproduce_idarts_table2, true},
      {"idarts:table3", "iDARTS table 3: T and K on NAS-Bench-201 (needs its table)", reproduce_idarts_table3,
       true},
      {"idarts:table4", "iDARTS table 4: products and bytes of every hypergradient on a supernet",
       reproduce_idarts_table4},
      {"idarts:figure1", "iDARTS figure 1: T on NAS-Bench-1Shot1 (needs its table)", reproduce_idarts_figure1,
       true},
      {"idarts:figure2", "iDARTS figure 2: T and the rates on NAS-Bench-201 (needs its table)",
       reproduce_idarts_figure2, true},
      {"idarts:figure4", "iDARTS figure 4: K on NAS-Bench-1Shot1 (needs its table)", reproduce_idarts_figure4,
       true},
  };
  return list;
}

const Item& find_item(const std::string& name) {
  std::vector<std::string> names;
  for (const Item& item : items()) {
    if (item.name == name) return item;
    names.push_back(item.name);
  }
  throw std::invalid_argument(
      fmt::format("item '{}' is unknown: choose from {}", name, fmt::join(names, ", ")));
}

// ---- text ----

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return value.dump();
}

void print_table(const Json& table) {
  fmt::print("{}\n", table.at("title").get<std::string>());
  const Json& rows = table.at("rows");
  if (rows.empty()) return;
  std::vector<std::string> columns;
  for (const auto& [name, value] : rows.front().items()) columns.push_back(name);
  std::map<std::string, size_t> width;
  for (const std::string& column : columns) {
    width[column] = column.size();
    for (const Json& row : rows)
      width[column] = std::max(width[column], cell(row.value(column, Json())).size());
  }
  for (const std::string& column : columns) fmt::print("{:>{}}", column, width[column] + 2);
  fmt::print("\n");
  for (const Json& row : rows) {
    for (const std::string& column : columns)
      fmt::print("{:>{}}", cell(row.value(column, Json())), width[column] + 2);
    fmt::print("\n");
  }
  fmt::print("\n");
}

void print_text(const Json& result) {
  for (const Json& each : result.at("tables")) print_table(each);
  for (const Json& note : result.value("notes", Json::array())) fmt::print("{}\n", note.get<std::string>());
  for (const Json& each : result.at("claims")) {
    fmt::print("{}: {} ({})\n", each.at("holds").get<bool>() ? "holds" : "does not hold",
               each.at("claim").get<std::string>(), each.at("why").get<std::string>());
  }
}

int list_items(bool json) {
  if (json) {
    Json out = Json::array();
    for (const Item& item : items()) out.push_back({{"name", item.name}, {"summary", item.summary}});
    fmt::print("{}\n", Json{{"items", out}}.dump());
  } else {
    for (const Item& item : items()) fmt::print("  {:<20}{}\n", item.name, item.summary);
  }
  return success;
}

void check_options(const Item& item, const ReproduceOptions& o) {
  if (!item.searches && (!o.benchmark.empty() || o.epochs != 0 || !o.seeds.empty())) {
    throw std::invalid_argument(fmt::format(
        "--benchmark, --epochs and --seeds are of the items that search; {} does not", item.name));
  }
  if (o.epochs < 0) {
    throw std::invalid_argument(
        fmt::format("--epochs {}: must be at least 1, or 0 for the scale's own", o.epochs));
  }
}

int run(CLI::App& command, const std::string& name, ReproduceOptions& o) {
  if (name.empty()) return list_items(o.common.json);
  const Item& item = find_item(name);
  check_options(item, o);
  o.tensors = apply_common_options(o.common);
  RunFlags flags;
  flags.out = o.out;
  RunFolder folder = open_run(command, flags, o.seed);
  o.out = folder.path();
  work_in(folder, [&] {
    Json result = {{"item", item.name}, {"scale", o.scale}, {"seed", o.seed}};
    {
      Progress progress(o.common);
      o.progress = [&](const std::string& what) { progress(item.name + ": " + what); };
      result.update(item.run(o));
    }
    result["folder"] = folder.path();
    if (o.common.json) {
      fmt::print("{}\n", result.dump());
    } else {
      print_text(result);
    }
    folder.end(RunStatus::finished, "", result);
    if (!o.common.json) fmt::print("the run is in {}\n", folder.path());
  });
  return success;
}

}  // namespace

Json claim(const std::string& text, bool holds, const std::string& why) {
  return {{"claim", text}, {"holds", holds}, {"why", why}};
}

Json table(const std::string& title, Json rows) { return {{"title", title}, {"rows", std::move(rows)}}; }

void add_reproduce_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("reproduce", "The papers' tables and figures again, ours beside theirs");
  const auto options = std::make_shared<ReproduceOptions>();
  const auto item = std::make_shared<std::string>();
  const auto seeds = std::make_shared<std::string>();
  std::string footer = "Items:\n";
  for (const Item& each : items()) footer += fmt::format("  {:<20}{}\n", each.name, each.summary);
  command->footer(footer + "Example:\n  bilevel reproduce krmd:toy --scale quick");
  command->add_option("item", *item, "what to reproduce; without it they are listed");
  command
      ->add_option("--scale", options->scale,
                   "quick ends within 3 minutes on two cores, full has the paper's lengths")
      ->check(CLI::IsMember({"quick", "full"}))
      ->capture_default_str();
  command->add_option("--data-dir", options->data_dir,
                      "folder of the image sets (`bilevel data get`) and of tables of trained cells, or 20 "
                      "Newsgroups as folder or tar");
  command->add_option(
      "--benchmark", options->benchmark,
      "idarts: the table of trained cells (`bilevel query`), where --data-dir does not hold it");
  command->add_option("--epochs", options->epochs, "idarts: of every search; 0 = as the scale has them")
      ->capture_default_str();
  command->add_option(
      "--seeds", *seeds,
      "idarts: a list, one search of every setting each: 0-2 (three seeds), 0,3,7 or 2-2 (one seed); as "
      "many as the scale has by default, from --seed on");
  command->add_option("--seed", options->seed, "of splits, noise, starts and batches")->capture_default_str();
  command->add_option("--out", options->out,
                      "folder for the result as summary.json, and idarts's curves as ITEM.csv; "
                      "runs/reproduce-DATE-SEED by default");
  options->common.dtype = "float";  // of the items on data; the small ones are in double in any case
  add_common_options(*command, options->common);
  command->callback([command, item, seeds, options, &exit_code] {
    if (!seeds->empty()) options->seeds = parse_seeds(*seeds);
    exit_code = run(*command, *item, *options);
  });
}

}  // namespace bilevel::cli
