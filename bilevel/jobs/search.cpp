#include "bilevel/jobs/search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>

#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/jobs/search_setup.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/random_search.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/report/picture.h"
#include "bilevel/run/kept_loop.h"
#include "bilevel/run/operation_times.h"
#include "bilevel/run/result_json.h"

namespace bilevel {

double test_accuracy(const nas::EpochRecord& record) {
  for (const auto& [column, value] : record.benchmark) {
    if (column == "cifar10_test" || column == "test_acc") return value;
  }
  return std::nan("");
}

namespace {

// ---- progress ----

std::string epoch_line(const nas::SearchSpace& space, const nas::EpochRecord& r, int64_t epochs) {
  const auto text = [](double value, const char* format) {
    return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
  };
  std::string shares;
  for (size_t i = 0; i < space.operations.size(); ++i) {
    if (r.operation_shares[i] <= 0) continue;
    shares += fmt::format("{}{} {:.0f}%", shares.empty() ? "" : ", ", space.operations[i],
                          100 * r.operation_shares[i]);
  }
  std::string line = fmt::format("epoch {}/{}: validation loss {}, accuracy {} %", r.epoch, epochs,
                                 text(r.valid_loss, "{:.4f}"), text(r.valid_accuracy, "{:.1f}"));
  if (std::isfinite(test_accuracy(r))) line += fmt::format(", table {:.2f} %", test_accuracy(r));
  if (std::isfinite(r.eigenvalue)) line += fmt::format(", eigenvalue {:.3g}", r.eigenvalue);
  if (std::isfinite(r.implicit_over_direct))
    line += fmt::format(", implicit/direct {:.2g}", r.implicit_over_direct);
  return line + fmt::format("; {}; {:.0f} s", shares, r.seconds);
}

// ---- the search itself ----

nas::SearchState resumed_search(const SearchSetup& setup, const Checkpoint& checkpoint,
                                const std::string& batch_norm, const RunContext& context) {
  require_identity(context, checkpoint, {{"data", setup.digest}},
                   fmt::format("the run was started on different images or a different split (now {} "
                               "training, {} validation): give it the original data",
                               setup.problem->inner_samples(), setup.problem->outer_samples()));
  warn_of_other_norms(batch_norm, checkpoint, context);
  return nas::search_state(checkpoint, setup.space, setup.tensors.device());
}

nas::SearchSummary search_in(RunContext& context, const SearchSetup& setup, const SearchJobOptions& o,
                             nas::Search* search) {
  const nas::SearchOptions& options = o.search;
  const std::optional<Checkpoint> checkpoint = context.load();
  nas::SearchState state = checkpoint          ? resumed_search(setup, *checkpoint, o.batch_norm, context)
                           : search != nullptr ? search->begin()
                                               : nas::begin_random_search(*setup.random);
  nas::SearchHooks hooks;
  OracleCounts counts = state.counts;
  StepProgress progress{.job = "search"};
  if (search != nullptr) {
    progress.total = options.epochs * search->steps_per_epoch();
    progress.before = state.epoch * search->steps_per_epoch() + state.step;
  }
  hooks.step = [&](const nas::SearchState& s, int64_t steps) {
    counts = s.counts;
    progress.step = s.epoch * steps + s.step;
    if (context.progress_due()) {  // to read a mean waits for the device
      progress.loss = s.loss.value();
      progress.direction_norm = s.norm.value();
      progress.more = fmt::format("epoch {}/{}", s.epoch + 1, options.epochs);
    }
    context.step(progress);
  };
  hooks.epoch = [&](const nas::EpochRecord& r) {
    Json line = {{"step", r.epoch}};
    line.update(nas::epoch_json(setup.space, r));
    if (search != nullptr) line["counts"] = counts_json(counts);  // others train cells, without an oracle
    context.record(line);
    context.line(epoch_line(setup.space, r, options.epochs));
  };
  keep_in<nas::SearchState>(context, hooks, nas::put_search, {{"data", setup.digest}});
  hooks.message = [&](const std::string& text) { context.line(text); };
  const nas::Benchmark* table = setup.benchmark ? &*setup.benchmark : nullptr;
  return search != nullptr ? search->run(std::move(state), hooks)
                           : nas::random_search(*setup.random, table, std::move(state), hooks);
}

SearchProfile profile_of(const OperationTimes& times) {
  SearchProfile profile;
  profile.seconds = times.seconds();
  for (const auto& row : times.oracle_calls()) {
    profile.oracle_calls.push_back({row.name.substr(row.name.find(' ') + 1), row.calls, row.whole});
  }
  for (const auto& row : times.operations()) profile.operations.push_back({row.name, row.calls, row.own});
  return profile;
}

// Reading a number waits for the device, which works on its own.
std::function<void()> waiting_for(const at::TensorOptions& tensors) {
  if (tensors.device().is_cpu()) return {};
  const Tensor number = at::zeros({}, tensors);
  return [number] { number.item<double>(); };
}

// ---- its result ----

void look_up(const SearchSetup& setup, SearchJobResult& result) {
  result.has_table = setup.benchmark.has_value();
  if (!result.has_table) return;
  try {
    result.in_table = setup.benchmark->query(setup.space, result.summary.genotype);
  } catch (const std::runtime_error& missing) {
    result.table_note = missing.what();
  }
}

// Of the network at the space's own size, for these images.
void count_network(const SearchSetup& setup, SearchJobResult& result) {
  const nas::SupernetOptions& images = setup.problem->supernet().options();
  nas::NetworkOptions size;
  size.input_channels = images.input_channels;
  size.height = images.height;
  size.width = images.width;
  size.classes = images.classes;
  const nas::Network network(setup.space, result.summary.genotype, size);
  result.parameters = network.parameters();
  result.multiply_adds = network.multiply_adds();
}

// How far alpha has gone from where it began, as the root of the mean square of its numbers, without what a
// softmax does not see; and what as many steps of Adam along noise come to: each is about the rate, up or
// down.
void measure_alpha(const SearchSetup& setup, const nas::Search& search, const nas::SearchOptions& options,
                   SearchJobResult& result) {
  const int64_t steps =
      std::max<int64_t>(0, result.summary.chosen_epoch - options.warmup_epochs) * search.steps_per_epoch();
  if (!nas::find_search_method(options.method).moves_alpha || steps == 0) return;
  const Tensor moved = result.summary.alpha - search.begin().algorithm.x.to(at::kCPU, at::kDouble);
  double squares = 0, free = 0, numbers = 0;
  for (const nas::AlphaBlock& block : setup.space.alpha) {
    const Tensor part = setup.space.block(moved, block.name);
    squares += (part - part.mean(1, /*keepdim=*/true)).square().sum().item<double>();
    free += static_cast<double>(block.rows * (block.choices - 1));
    numbers += static_cast<double>(block.rows * block.choices);
  }
  result.alpha_moved = std::sqrt(squares / numbers);
  const Schedule schedule =
      nas::alpha_schedule(options, (options.epochs - options.warmup_epochs) * search.steps_per_epoch());
  result.alpha_moved_by_chance =
      options.outer.rate * std::sqrt(nas::sum_of_factors(schedule, steps, 2) * free / numbers);
}

void warn_of_chance(const SearchJobResult& result, RunContext& context) {
  if (!result.moved_by_chance()) return;
  context.warning(fmt::format(
      "alpha has moved by {:.2g} on average, and steps in random directions would have moved it by {:.2g}: "
      "which operations lead is chance here. Give more {} or a larger {}; {} shows what random cells reach",
      result.alpha_moved, result.alpha_moved_by_chance, named("epochs"), named("alpha_rate"),
      named("baselines", "3")));
}

void train_baselines(const SearchSetup& setup, SearchJobResult& result, RunContext& context) {
  if (!setup.baselines || result.summary.end == nas::SearchEnd::interrupted ||
      result.summary.end == nas::SearchEnd::failed) {
    return;
  }
  result.baselines_on = setup.baselines_on_test ? "test" : "validation";
  result.baselines =
      nas::train_cell_baselines(*setup.baselines, result.summary.genotype,
                                {.message = [&](const std::string& text) { context.progress(text); },
                                 .interrupted = [&] { return context.interrupted(); }});
  const int64_t all = setup.baselines->samples + (nas::has_3x3(setup.space) ? 2 : 1);
  if (static_cast<int64_t>(result.baselines.size()) < all) result.summary.end = nas::SearchEnd::interrupted;
}

Json benchmark_json(const nas::BenchmarkValues& values) {
  Json out = Json::object();
  for (const auto& [column, value] : values) out[column] = value;
  return out;
}

Json profile_json(const SearchProfile& profile) {
  const auto rows = [](const std::vector<SearchProfile::Row>& all) {
    Json out = Json::array();
    for (const SearchProfile::Row& row : all) {
      out.push_back({{"name", row.name}, {"calls", row.calls}, {"seconds", row.seconds}});
    }
    return out;
  };
  return {{"seconds", profile.seconds},
          {"oracle_calls", rows(profile.oracle_calls)},
          {"operations", rows(profile.operations)}};
}

Json search_json(const SearchJobResult& r, const std::string& data, const Json& choice) {
  const nas::SearchSummary& s = r.summary;
  Json out = {{"space", r.space.name},
              {"method", r.search.method},
              {"data", data},
              {"seed", r.search.seed},
              {"guard", r.search.guard.name},
              {"guard_strength", r.search.guard.strength},
              {"stopped", nas::name_of(s.end)},
              {"genotype", nas::genotype_text(s.genotype)},
              {"chosen_epoch", s.chosen_epoch},
              {"parameters", r.parameters},
              {"multiply_adds", r.multiply_adds}};
  add_choice(choice, out);
  if (!s.reason.empty()) out["reason"] = s.reason;
  out["select"] = r.search.select;
  if (r.in_table) {
    out["benchmark"] = benchmark_json(r.in_table->values);
    out["regret"] = benchmark_json(r.in_table->regret);
  } else if (r.has_table) {
    out["benchmark_note"] = r.table_note;
  }
  const auto numbers = [](const Tensor& t) {
    const Tensor values = t.contiguous();
    return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  };
  out["alpha"] = numbers(s.alpha);
  out["mixture"] = numbers(s.mixture);
  out["alpha_blocks"] = Json::array();
  for (const nas::AlphaBlock& block : r.space.alpha) {
    out["alpha_blocks"].push_back(
        Json{{"name", block.name}, {"rows", block.rows}, {"choices", block.choices}});
  }
  out["alpha_moved"] = number(r.alpha_moved);
  out["alpha_moved_by_chance"] = number(r.alpha_moved_by_chance);
  out["operations"] = r.space.operations;
  if (!r.baselines.empty()) {
    out["baselines_on"] = r.baselines_on;
    out["baselines"] = Json::array();
    for (const nas::TrainedCell& cell : r.baselines) {
      out["baselines"].push_back({{"cell", cell.name},
                                  {"genotype", nas::genotype_text(cell.genotype)},
                                  {"accuracy", number(cell.accuracy)}});
    }
  }
  out["history"] = Json::array();
  for (const nas::EpochRecord& record : s.history) {
    out["history"].push_back(nas::epoch_json(r.space, record));
  }
  out["linear_solves"] = s.statuses;
  out["counts"] = counts_json(s.counts);
  out["seconds"] = s.seconds;
  if (r.profile) out["profile"] = profile_json(*r.profile);
  if (!s.notes.empty()) out["notes"] = s.notes;
  if (!r.folder.empty()) out["folder"] = r.folder;
  return out;
}

void write_genotype(RunContext& context, const nas::SearchSummary& summary, std::vector<std::string>& files) {
  RunFolder& folder = context.folder();
  const nas::Genotype& genotype = summary.genotype;
  write_file(folder.file("genotype.txt"), nas::genotype_text(genotype) + "\n");
  write_file(folder.file("genotype.json"), nas::genotype_json(genotype) + "\n");
  files = {"genotype.txt", "genotype.json", "metrics.jsonl"};
  if (!can_draw()) return;
  write_file(folder.file("cell.svg"), picture_of(nas::genotype_dot(genotype), "svg"));
  files.emplace_back("cell.svg");
  if (!context.shows_pictures()) return;
  context.picture("cell", static_cast<int64_t>(summary.history.size()),
                  picture_of(nas::genotype_dot(genotype), "png"));
}

JobEnd end_of_search(const nas::SearchSummary& summary, const std::string& method) {
  if (summary.end == nas::SearchEnd::interrupted) return {.status = RunStatus::interrupted};
  if (summary.end != nas::SearchEnd::failed) return {};
  return {RunStatus::failed, fmt::format("{}: {}", method, summary.reason), EndCause::mathematics};
}

SearchJobResult run_on(const ImageData* images, SearchJobOptions o, RunContext& context) {
  SearchJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
  if (context.resumes()) keep_earlier_defaults(o, read_stored_run(context.place().resume));
  if (images == nullptr) context.line("search: reading the data");
  SearchSetup setup = set_up_search(o, images, context);
  std::optional<nas::Search> search;
  if (!setup.random) {
    search.emplace(*setup.problem, o.search, setup.benchmark ? &*setup.benchmark : nullptr);
  }
  context.open("search", o.search.seed, OptionsView(o));
  SearchJobResult result{.space = setup.space, .search = o.search};
  result.folder = context.folder_name();
  const std::string into = context.has_folder() ? ", into " + result.folder : "";
  context.line(search ? fmt::format("search: {} weights, {} alpha, {} steps of alpha an epoch{}",
                                    setup.problem->supernet().plan().parameters(), setup.space.alpha_size(),
                                    search->steps_per_epoch(), into)
                      : fmt::format("search: {} random cells, {} epochs each{}", o.search.samples,
                                    o.search.epochs, into));
  context.work([&] {
    std::optional<OperationTimes> times;
    if (o.profile) times.emplace(waiting_for(setup.tensors));
    result.summary = search_in(context, setup, o, search ? &*search : nullptr);
    if (times) result.profile = profile_of(*times);
    times.reset();
    look_up(setup, result);
    count_network(setup, result);
    if (search && result.summary.end != nas::SearchEnd::interrupted &&
        result.summary.end != nas::SearchEnd::failed) {
      measure_alpha(setup, *search, o.search, result);
      warn_of_chance(result, context);
    }
    train_baselines(setup, result, context);
    result.json = search_json(result, images == nullptr ? o.data.data : "", automatic_choice(context));
    result.json["held_out"] = setup.held_out;
    add_communication(setup.ranks, result.json);
    result.end = end_of_search(result.summary, o.search.method);
    if (context.has_folder() && result.end.status == RunStatus::finished) {
      write_files(result.end, [&] { write_genotype(context, result.summary, result.files); });
    }
    context.end(result.end.status,
                result.end.cause == EndCause::mathematics ? result.summary.reason : result.end.message,
                result.json);
  });
  return result;
}

}  // namespace

SearchJobResult run_search(SearchJobOptions options, RunContext& context) {
  return run_on(nullptr, std::move(options), context);
}

SearchJobResult run_search_on(const ImageData& images, SearchJobOptions options, RunContext& context) {
  const ImageData data = completed(images, /*needs_test=*/false);
  return run_on(&data, std::move(options), context);
}

nas::SearchDiagnosis diagnose_search_run(const StoredRun& run, double accuracy, RunContext& context) {
  SearchJobOptions o;
  give_rest(OptionsView(o), run.given);
  for (const auto& [name, note] : run.notes.items()) context.note(name, note);
  keep_earlier_defaults(o, run);
  if (o.batch_norm == "rank") {
    context.warning(
        fmt::format("{}: batch norm saw each rank's own images there; the diagnosis is of whole batches",
                    named("at", run.folder)));
    o.given.set(o.batch_norm, "global");
  }
  const SearchSetup setup = set_up_search(o, nullptr, context);
  if (setup.random) {
    throw OptionError(fmt::format("{}: {} trains single cells; there is no bilevel problem",
                                  named("at", run.folder), named("method", "random")));
  }
  const Checkpoint checkpoint = load_checkpoint(run.folder + "/checkpoint");
  const AlgorithmState at = nas::search_state(checkpoint, setup.space, setup.tensors.device()).algorithm;
  return nas::diagnose_search(*setup.problem, o.search, accuracy, at.inner.w, at.x);
}

}  // namespace bilevel
