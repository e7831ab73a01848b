#include "reproduce/idarts_runs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "bilevel/data/image_sets.h"
#include "bilevel/data/search_split.h"
#include "bilevel/data/write_file.h"
#include "bilevel/nas/search_checkpoint.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/run/result_json.h"
#include "reproduce/dealt.h"
#include "reproduce/shared_file.h"

namespace bilevel::reproduce {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

// ---- the sizes of a scale ----

// 0 = as published.
struct Sizes {
  int64_t images = 0;  // of each half
  int64_t side = 0;    // that pictures are brought to
  int64_t channels = 0, cells = 0;
  int64_t batch = 0, epochs = 0, alpha_steps = 0;
  int64_t samples = 0;       // random cells
  int64_t score_images = 0;  // after every epoch
  bool eigenvalue = true;
  uint64_t seeds = 3;
};

Sizes sizes_of(const ReproduceOptions& options, nas::SpaceKind kind) {
  if (options.full()) return {};
  // What makes bare searches collapse is the depth: with one cell a stage they do not, with the published
  // five they do within a few hundred steps of alpha, however few the channels. The steps of alpha are a
  // quarter of a pass over CIFAR-10's half.
  if (options.medium())
    return {.side = 16,
            .channels = 4,
            .epochs = 10,
            .alpha_steps = 97,
            .score_images = 1000,
            .eigenvalue = false};
  Sizes quick{.images = 512,
              .channels = 4,
              .batch = 32,
              .epochs = 3,
              .samples = 20,
              .score_images = 256,
              .eigenvalue = false,
              .seeds = 2};
  // A step in the cells of 1Shot1 and DARTS costs many times one in NAS-Bench-201's. The cells are the fewest
  // that still halve the image twice.
  const bool cheap = kind == nas::SpaceKind::nasbench201;
  quick.cells = cheap ? 1 : 3;
  quick.side = cheap ? 16 : 8;
  quick.alpha_steps = cheap ? 8 : 5;
  return quick;
}

// The size that a scale has, where it has one of its own.
template <typename T>
void take(T& published, int64_t size) {
  if (size > 0) published = size;
}

// ---- images ----

std::string image_folder(const ReproduceOptions& options) {
  return options.data_dir.empty() ? ImageDataOptions{}.folder : options.data_dir;
}

bool has_set(const std::string& name, const ReproduceOptions& options) {
  try {
    (void)find_image_set(name, image_folder(options));
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

nas::SearchImages made_up_images(const Sizes& sizes, const ReproduceOptions& options) {
  nas::SyntheticImages made{.samples = sizes.images, .height = sizes.side, .width = sizes.side};
  nas::SearchImages images;
  images.channels = made.channels;
  images.height = made.height;
  images.width = made.width;
  images.classes = made.classes;
  made.seed = 2 * options.seed;
  images.train = nas::image_source(nas::draw_images(made, options.tensors));
  made.seed = 2 * options.seed + 1;
  images.valid = nas::image_source(nas::draw_images(made, options.tensors));
  return images;
}

struct NamedImages {
  nas::SearchImages images;
  std::string description;
  std::optional<ImageData> data;
};

NamedImages load_images(const nas::SearchSpace& space, const ReproduceOptions& options) {
  const Sizes sizes = sizes_of(options, space.kind);
  std::string set = "cifar10";
  if (!options.full() && !options.medium() && !has_set(set, options))
    set = has_set("fashion-mnist", options) ? "fashion-mnist" : "";
  if (set.empty()) {
    return {made_up_images(sizes, options),
            fmt::format("{0} + {0} made-up images of {1} x {1}", sizes.images, sizes.side),
            {}};
  }
  ImageDataOptions from{.data = set, .folder = image_folder(options)};
  AugmentOptions augment;
  take(from.image_size, sizes.side);
  take(augment.crop_padding, sizes.side / 8);  // 4 at 32 pixels
  ImageData data = load_image_data(from);
  SearchSplitOptions halves{.seed = options.seed};
  if (sizes.images > 0) {
    halves.train_size = sizes.images;
  } else {
    halves.file = shared_file(options.data_dir, "cifar-split.txt");
  }
  const SearchSplit split = make_search_split(data.train.labels, data.classes, halves);
  NamedImages named{nas::search_images(data, split, augment, options.tensors), "", {}};
  named.description = fmt::format(
      "{} + {} images of {} at {} x {}, {}", split.train.numel(), split.valid.numel(), set,
      named.images.height, named.images.width,
      halves.file.empty() ? fmt::format("halves drawn by seed {}", options.seed) : "NAS-Bench-201's halves");
  named.data = std::move(data);
  return named;
}

// ---- tables ----

std::string table_name(nas::SpaceKind kind) {
  switch (kind) {
    case nas::SpaceKind::nasbench201:
      return "nasbench201.csv";
    case nas::SpaceKind::nasbench1shot1:
      return "nasbench1shot1_space3_test.csv.xz";
    case nas::SpaceKind::darts:
      break;
  }
  return {};  // too many cells to train them all
}

void find_table(SearchGround& ground, const ReproduceOptions& options) {
  const std::string name = table_name(ground.space.kind);
  if (name.empty()) return;
  const std::string path =
      options.benchmark.empty() ? shared_file(options.data_dir, name) : options.benchmark;
  if (!path.empty()) {
    ground.benchmark = nas::Benchmark::load(path);
    return;
  }
  ground.no_benchmark = fmt::format(
      "There is no table of trained cells: give --benchmark the file, or --data-dir the folder of {}; "
      "without it the searches run, but what their cells reach is not known and no claim is judged.",
      name);
}

double value_of(const nas::BenchmarkValues& values, const std::string& column) {
  for (const auto& [name, value] : values) {
    if (name == column) return value;
  }
  return nothing;
}

// The way of a search, where its alpha went one.
const std::vector<nas::EpochRecord>& way_of(const SearchRuns& runs, size_t seed) {
  static const std::vector<nas::EpochRecord> none;
  return nas::find_search_method(runs.setting.options.method).moves_alpha ? runs.runs[seed].history : none;
}

template <typename Values>
Statistic statistic_at(const std::vector<nas::SearchSummary>& runs, const std::string& column, int64_t epoch,
                       Values values) {
  std::vector<double> found;
  for (const nas::SearchSummary& run : runs) {
    if (epoch >= 1 && epoch <= static_cast<int64_t>(run.history.size())) {
      found.push_back(value_of(values(run.history[static_cast<size_t>(epoch) - 1]), column));
    }
  }
  return statistic(found);
}

}  // namespace

SearchGround search_ground(const std::string& space, const ReproduceOptions& options) {
  SearchGround ground;
  ground.space = nas::make_space(space);
  options.progress("reading images and tables");
  NamedImages named = load_images(ground.space, options);
  ground.images = named.description;
  ground.data = std::move(named.data);
  nas::SupernetOptions supernet;  // the published sizes
  const Sizes sizes = sizes_of(options, ground.space.kind);
  take(supernet.channels, sizes.channels);
  take(supernet.cells, sizes.cells);
  ground.problem = std::make_unique<nas::SupernetProblem>(
      nas::make_supernet_problem(ground.space, supernet, named.images, options.tensors));
  find_table(ground, options);
  ground.seeds = options.seeds_or(sizes.seeds);
  return ground;
}

SearchSetting search_setting(const std::string& label, const SearchGround& ground, const std::string& method,
                             const ReproduceOptions& options) {
  SearchSetting setting{label, nas::default_search_options(ground.space, method), {}};
  nas::SearchOptions& o = setting.options;
  o.guard = {};  // the paper's algorithm and those it is compared with are bare
  const Sizes sizes = sizes_of(options, ground.space.kind);
  take(o.epochs, sizes.epochs);
  take(o.batch, sizes.batch);
  o.alpha_steps = std::max<int64_t>(1, ground.problem->inner_samples() / o.batch);
  take(o.alpha_steps, sizes.alpha_steps);
  take(o.score_images, sizes.score_images);
  take(o.samples, sizes.samples);
  if (!sizes.eigenvalue) o.eigenvalue_products = 0;
  if (options.epochs > 0) o.epochs = options.epochs;
  return setting;
}

SearchSetting idarts_setting(const SearchGround& ground, int64_t T, int64_t K,
                             const ReproduceOptions& options) {
  SearchSetting setting = search_setting(fmt::format("iDARTS T={} K={}", T, K), ground, "idarts", options);
  setting.options.inner.steps = T;
  setting.options.hypergradient.terms = K;
  return setting;
}

Statistic SearchRuns::accuracy(const std::string& column) const {
  std::vector<double> values;
  for (const nas::BenchmarkValues& each : reached) values.push_back(value_of(each, column));
  return statistic(values);
}

Statistic SearchRuns::accuracy_at(const std::string& column, int64_t epoch) const {
  return statistic_at(runs, column, epoch, [](const nas::EpochRecord& r) { return r.benchmark; });
}

Statistic SearchRuns::regret_at(const std::string& column, int64_t epoch) const {
  return statistic_at(runs, column, epoch, [](const nas::EpochRecord& r) { return r.regret; });
}

Side SearchRuns::accuracies(const std::string& column) const {
  Side side{setting.label, {}};
  for (const nas::BenchmarkValues& each : reached) side.values.push_back(value_of(each, column));
  return side;
}

Side SearchRuns::mean_regrets(const std::string& column, int64_t last_epoch) const {
  Side side{setting.label, {}};
  for (const nas::SearchSummary& run : runs) {
    std::vector<double> by_epoch;
    for (int64_t epoch = 1; epoch <= last_epoch; ++epoch) {
      const Statistic one =
          statistic_at({run}, column, epoch, [](const nas::EpochRecord& r) { return r.regret; });
      by_epoch.push_back(one.mean);
    }
    side.values.push_back(statistic(by_epoch).mean);
  }
  return side;
}

namespace {

nas::SearchSummary run_search(SearchGround& ground, const SearchSetting& setting, uint64_t seed,
                              const ReproduceOptions& options) {
  nas::SearchOptions search_options = setting.options;
  search_options.seed = seed;
  const std::string what = fmt::format("{}, seed {}", setting.label, seed);
  nas::Search search(*ground.problem, search_options, ground.benchmark ? &*ground.benchmark : nullptr,
                     setting.rule);
  nas::SearchHooks hooks;
  hooks.step = [&](const nas::SearchState& state, int64_t steps) {
    options.progress(fmt::format("{}: epoch {} of {}, step {} of {}", what, state.epoch + 1,
                                 search_options.epochs, state.step, steps));
  };
  hooks.message = [&](const std::string& text) { options.progress(what + ": " + text); };
  return search.run(search.begin(), hooks);
}

}  // namespace

std::vector<SearchRuns> run_searches(SearchGround& ground, const std::vector<SearchSetting>& settings,
                                     const ReproduceOptions& options) {
  const std::vector<uint64_t>& seeds = ground.seeds;
  const std::vector<nas::SearchSummary> grid = dealt(
      options, settings.size() * seeds.size(),
      [&](size_t i) {
        return run_search(ground, settings[i / seeds.size()], seeds[i % seeds.size()], options);
      },
      [&](const nas::SearchSummary& summary) { return nas::packed_summary(summary, ground.space); },
      [&](const Packed& packed) { return nas::unpacked_summary(packed, ground.space); });
  std::vector<SearchRuns> all;
  for (const SearchSetting& setting : settings) {
    SearchRuns& runs = all.emplace_back(SearchRuns{setting, {}, {}, {}});
    for (const uint64_t seed : seeds) {
      nas::SearchSummary summary = grid[(all.size() - 1) * seeds.size() + runs.seeds.size()];
      nas::BenchmarkValues reached;
      if (ground.benchmark) {
        try {
          reached = ground.benchmark->query(ground.space, summary.genotype).values;
        } catch (const std::runtime_error& missing) {  // the other seeds still count
          summary.notes.push_back(missing.what());
        }
      }
      runs.seeds.push_back(seed);
      runs.reached.push_back(std::move(reached));
      runs.runs.push_back(std::move(summary));
    }
  }
  return all;
}

SearchRuns run_searches(SearchGround& ground, const SearchSetting& setting, const ReproduceOptions& options) {
  return run_searches(ground, std::vector<SearchSetting>{setting}, options).front();
}

Json runs_json(const std::vector<SearchRuns>& all) {
  Json rows = Json::array();
  for (const SearchRuns& runs : all) {
    for (size_t i = 0; i < runs.runs.size(); ++i) {
      const nas::SearchSummary& run = runs.runs[i];
      const nas::SearchOptions& o = runs.setting.options;
      Json row = {{"setting", runs.setting.label},
                  {"method", o.method},
                  {"guard", o.guard.name},
                  {"T", o.inner.steps},
                  {"K", o.hypergradient.terms},
                  {"rate", o.inner.rate},
                  {"alpha_rate", o.outer.rate},
                  {"seed", runs.seeds[i]},
                  {"genotype", nas::genotype_text(run.genotype)},
                  {"seconds", run.seconds},
                  {"counts", counts_json(run.counts)},
                  {"notes", run.notes},
                  {"reached", Json::object()},
                  {"history", Json::array()}};
      for (const auto& [column, value] : runs.reached[i]) row["reached"][column] = number(value);
      for (const nas::EpochRecord& r : way_of(runs, i)) {
        Json record = {{"epoch", r.epoch},
                       {"valid_loss", number(r.valid_loss)},
                       {"valid_accuracy", number(r.valid_accuracy)},
                       {"skips", r.skips},
                       {"eigenvalue", number(r.eigenvalue)},
                       {"mixed_over_direct", number(r.implicit_over_direct)},
                       {"genotype", nas::genotype_text(r.genotype)},
                       {"regret", Json::object()}};
        for (const auto& [column, value] : r.regret) record["regret"][column] = number(value);
        row["history"].push_back(std::move(record));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void save_runs(const std::vector<SearchRuns>& all, const std::string& file, const ReproduceOptions& options) {
  if (options.out.empty()) return;
  write_file(std::filesystem::path(options.out) / file, [&](std::ostream& to) {
    to << "setting,method,T,K,rate,alpha_rate,seed,epoch,valid_loss,valid_accuracy,skips,column,accuracy,"
          "regret,genotype\n";
    for (const SearchRuns& runs : all) {
      const nas::SearchOptions& o = runs.setting.options;
      for (size_t i = 0; i < runs.runs.size(); ++i) {
        for (const nas::EpochRecord& r : way_of(runs, i)) {
          const std::string begin =
              fmt::format("{},{},{},{},{},{},{},{},{},{},{}", runs.setting.label, o.method, o.inner.steps,
                          o.hypergradient.terms, o.inner.rate, o.outer.rate, runs.seeds[i], r.epoch,
                          r.valid_loss, r.valid_accuracy, r.skips);
          const std::string end = fmt::format("\"{}\"\n", nas::genotype_text(r.genotype));
          for (const auto& [column, regret] : r.regret) {
            to << fmt::format("{},{},{},{},{}", begin, column, value_of(r.benchmark, column), regret, end);
          }
          if (r.regret.empty()) to << begin << ",,,," << end;
        }
      }
    }
  });
}

Json search_notes(const SearchGround& ground, const std::vector<SearchRuns>& all,
                  const ReproduceOptions& options) {
  Json notes = Json::array();
  const nas::SupernetOptions& net = ground.problem->supernet().options();
  const nas::SearchOptions& first = all.front().setting.options;
  notes.push_back(
      fmt::format("{}; supernet of {} channels, {} cells{}, {} weights; batches of {}, {} steps of alpha an "
                  "epoch, seeds {}; ± is the standard deviation over the seeds.",
                  ground.images, net.channels, net.cells,
                  ground.space.kind == nas::SpaceKind::nasbench201 ? " a stage" : "",
                  ground.problem->supernet().plan().parameters(), first.batch, first.alpha_steps,
                  fmt::join(all.front().seeds, ", ")));
  std::string lengths;
  for (const SearchRuns& runs : all) {
    const std::string length = fmt::format("{} {}", runs.setting.options.method, runs.setting.options.epochs);
    if (lengths.find(length) == std::string::npos) lengths += (lengths.empty() ? "" : ", ") + length;
  }
  notes.push_back(fmt::format("Epochs: {}.", lengths));
  if (options.medium()) {
    notes.push_back(
        "medium has the published depth, on which the collapse depends, with a quarter of the channels and "
        "of the steps of alpha an epoch, fewer epochs and smaller images.");
  } else if (!options.full()) {
    notes.push_back(
        "quick shows that everything runs. Its supernet, images and epochs are too few to say anything about "
        "the paper's numbers, and a claim that holds or fails here does so by chance.");
  }
  if (!ground.no_benchmark.empty()) notes.push_back(ground.no_benchmark);
  return notes;
}

}  // namespace bilevel::reproduce
