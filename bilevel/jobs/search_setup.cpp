#include "bilevel/jobs/search_setup.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/image_sets.h"
#include "bilevel/data/large_tensor.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/jobs/search_size.h"
#include "bilevel/nas/search_images.h"

namespace bilevel {
namespace {

constexpr int64_t published_steps = 390;        // an epoch of 25,000 images in batches of 64
constexpr int64_t steps_of_a_small_epoch = 50;  // that smaller batches aim at
constexpr double largest_scaled_rate = 0.02;    // of alpha: a step that is forgotten after a few others

nas::SearchSpace named_space(const SearchJobOptions& o) {
  const char* field = "space";
  try {
    nas::SearchSpace whole = nas::make_space(o.space);
    field = "operations";
    return o.operations.empty() ? whole : nas::make_space(o.space, o.operations);
  } catch (const std::invalid_argument& error) {
    throw OptionError(fmt::format("{}: {}", named(field), error.what()));
  }
}

nas::Benchmark load_table(const std::string& file, const nas::SearchSpace& space) {
  nas::Benchmark table = nas::Benchmark::load(file);
  try {
    table.require_space(space);
  } catch (const std::invalid_argument& error) {
    throw OptionError(
        fmt::format("{}: {}; give its table or leave it out", named("benchmark", file), error.what()));
  }
  return table;
}

// Cells of the size of the supernet, trained by the space's recipe but for what a search says of it.
nas::RandomSearch plan_random_search(const nas::SearchSpace& space, const SearchJobOptions& o,
                                     const ImageData& data, const DeviceImages& train,
                                     const DeviceImages& valid) {
  const nas::SearchOptions& search = o.search;
  nas::RandomSearch random;
  random.space = space;
  random.network.channels = o.network.channels;
  random.network.cells = o.network.cells;
  random.network.input_channels = data.train.images.size(1);
  random.network.height = data.train.images.size(2);
  random.network.width = data.train.images.size(3);
  random.network.classes = data.classes;
  random.train = train;
  random.valid = valid;
  random.training = nas::default_train_options(space.kind);
  random.training.epochs = search.epochs;
  random.training.batch = search.batch;
  random.training.rate = search.inner.rate;
  random.training.weight_decay = search.weight_decay;
  random.training.drop_path = random.training.auxiliary = 0;  // for long trainings
  random.training.augment = o.augment;
  random.samples = search.samples;
  random.seed = search.seed;
  return random;
}

// The method auto: the rest goes on as if the choice had been given.
void choose_search_method(SearchJobOptions& o, const SearchSetup& setup, RunContext& context) {
  nas::SearchOptions& s = o.search;
  for (const auto& [field, is_given] : {std::pair{"terms", o.given(s.hypergradient.terms)},
                                        std::pair{"curvature", o.given(s.hypergradient.curvature.kind)},
                                        std::pair{"linear_rate", o.given(o.linear_rate)}}) {
    if (is_given) {
      throw OptionError(fmt::format("{} with {}, which chooses it: leave it out, or name the method",
                                    named(field), named("method", "auto")));
    }
  }
  const nas::SearchDiagnosis d = nas::diagnose_search(*setup.problem, s, o.automatic.accuracy);
  context.line("auto: " + d.sentence);
  Json choice = {{"method", d.method},
                 {"implicit_share", number(d.implicit_share)},
                 {"smallest_eigenvalue", number(d.hessian.smallest)},
                 {"largest_eigenvalue", number(d.hessian.largest)},
                 {"error", number(d.error)},
                 {"accuracy", o.automatic.accuracy},
                 {"diagnosis_seconds", d.seconds},
                 {"sentence", d.sentence}};
  o.given.set(s.method, d.method);
  if (d.method == "idarts") {
    choice["K"] = d.terms;
    choice["curvature"] = d.curvature;
    o.given.set(s.hypergradient.terms, d.terms);
    o.given.set(s.hypergradient.curvature.kind, d.curvature);
    o.given.set(o.linear_rate, "auto");
  }
  context.note("auto", choice);
  complete_search(o, setup.space, /*chosen=*/true);
}

}  // namespace

std::string scale_to_images(SearchJobOptions& o, int64_t training_images) {
  nas::SearchOptions& s = o.search;
  std::vector<std::string> changed;
  const auto multiple_of_8 = [](int64_t count) { return count / 8 * 8; };
  if (const int64_t batch = std::clamp(multiple_of_8(training_images / steps_of_a_small_epoch),
                                       std::min<int64_t>(8, s.batch), s.batch);
      !o.given(s.batch) && batch < s.batch) {
    s.batch = batch;
    changed.push_back(named("batch", std::to_string(batch)));
  }
  const auto sentence = [&] {
    return changed.empty()
               ? std::string()
               : fmt::format("search: for {} training images, in place of the published defaults: {}",
                             training_images, fmt::join(changed, ", "));
  };
  if (!nas::find_search_method(s.method).moves_alpha) return sentence();
  const int64_t steps = nas::alpha_steps_an_epoch(s, training_images);
  if (const int64_t warmup = std::min((published_steps * s.warmup_epochs + steps - 1) / steps, s.epochs / 5);
      !o.given(s.warmup_epochs) && warmup > s.warmup_epochs) {
    s.warmup_epochs = warmup;
    changed.push_back(named("warmup_epochs", std::to_string(warmup)));
  }
  // As far as alpha goes by the same schedule in a published search.
  const auto way = [&](int64_t all) { return nas::sum_of_factors(nas::alpha_schedule(s, all), all); };
  const double travel = s.outer.rate * way(published_steps * s.epochs);
  const double moving = way(steps * std::max<int64_t>(1, s.epochs - s.warmup_epochs));
  const double rate = std::stod(fmt::format("{:.2g}", std::min(travel / moving, largest_scaled_rate)));
  if (!o.given(s.outer.rate) && rate > 1.5 * s.outer.rate) {
    s.outer.rate = rate;
    changed.push_back(named("alpha_rate", fmt::format("{:g}", rate)));
  }
  return sentence();
}

void keep_earlier_defaults(SearchJobOptions& o, const StoredRun& run) {
  const auto stored = [&](const char* field) {
    return std::find_if(run.effective.begin(), run.effective.end(),
                        [&](const auto& named_words) { return named_words.first == field; });
  };
  keep_batch_norm(OptionsView(o), run);
  if (stored("guard") == run.effective.end()) o.given.set(o.search.guard.name, "none");
  if (const auto method = stored("method");
      !o.given(o.search.method) && method != run.effective.end() && !method->second.empty()) {
    o.given.set(o.search.method, method->second.front());
  }
  OptionsView view(o);
  const auto keep = [&](const char* field) {
    const auto before = stored(field);
    if (before != run.effective.end() && !view.is_given(view.at(field))) {
      view.give(view.at(field), before->second);
    }
  };
  // They did not follow the number of images before.
  keep("batch");
  if (o.search.method == "auto" || nas::find_search_method(o.search.method).moves_alpha) keep("alpha_rate");
  // A default strength is another on other data, was 50 before that, and had no warm-up.
  const auto guard = stored("guard");
  if (guard == run.effective.end() || guard->second == std::vector<std::string>{"none"}) return;
  for (const char* field : {"guard_strength", "warmup_epochs"}) keep(field);
}

SearchSetup set_up_search(SearchJobOptions& o, const ImageData* images, RunContext& context) {
  SearchSetup setup;
  setup.space = named_space(o);
  const bool automatic = o.search.method == "auto";
  refuse_ignored_accuracy(o.given, o.automatic, automatic_choice(context), automatic);
  if (automatic) o.search.method = "idarts";  // whose defaults the diagnosis is made with
  complete_search(o, setup.space, !automatic_choice(context).is_null());
  setup.tensors = apply(o.compute, context);
  setup.ranks = batch_ranks(o.batch_norm, setup.tensors, context);
  if (automatic && context.has_other_ranks()) {
    throw OptionError(
        fmt::format("{} with {} ranks: let one process choose, with {}, and give its choice to the ranks",
                    named("method", "auto"), context.group()->size(), named("epochs", "0")));
  }
  if (!o.benchmark.empty()) setup.benchmark = load_table(o.benchmark, setup.space);
  if (o.network.cells == 0) o.network.cells = nas::default_search_cells(setup.space.kind);
  o.split.seed = o.search.seed;
  take_size_of_images(o);
  const ImageData read = images == nullptr ? load_image_data(o.data) : ImageData{};
  const ImageData& data = images == nullptr ? read : *images;
  for (const std::string& note : data.notes) context.line(note);
  setup.held_out = held_out_json(data);
  const SearchSplit split = make_search_split(data.train.labels, data.classes, o.split);
  setup.digest =
      data_digest({data.train.images, data.train.labels, split.train, split.valid}, {data.classes});
  context.agree("data", {{"digest", setup.digest}});
  const auto part = [&](const Tensor& positions) {
    return DeviceImages(select_rows(data.train.images, positions),
                        data.train.labels.index_select(0, positions), data.mean, data.std, setup.tensors);
  };
  const std::vector<std::string> sets = image_set_names();
  const bool are_own = images != nullptr || std::find(sets.begin(), sets.end(), o.data.data) == sets.end();
  std::string scaled = are_own ? scale_to_images(o, split.train.numel()) : "";
  if (o.search.method == "random") {
    setup.random = plan_random_search(setup.space, o, data, part(split.train), part(split.valid));
    setup.random->ranks = setup.ranks;
  }
  if (o.baselines > 0) {
    setup.baselines_on_test = data.test.labels.defined() && data.test.labels.numel() > 0;
    const DeviceImages judged = setup.baselines_on_test ? DeviceImages(data.test.images, data.test.labels,
                                                                       data.mean, data.std, setup.tensors)
                                                        : part(split.valid);
    setup.baselines = plan_random_search(
        setup.space, o, data,
        part(setup.baselines_on_test ? at::cat({split.train, split.valid}) : split.train), judged);
    setup.baselines->samples = o.baselines;
    setup.baselines->ranks = setup.ranks;
  }
  o.network.partial = o.search.guard.partial();
  setup.problem.emplace(nas::make_supernet_problem(
      setup.space, o.network, nas::search_images(data, split, o.augment, setup.tensors), setup.tensors));
  setup.problem->divide(setup.ranks);
  setup.space = setup.problem->supernet().space();  // with what its guard adds to alpha
  if (automatic) {
    choose_search_method(o, setup, context);
    if (are_own) scaled = scale_to_images(o, split.train.numel());
  }
  if (!scaled.empty()) context.line(scaled);
  if (const std::string hint = size_hint(o, data, split.train.numel()); !hint.empty()) context.line(hint);
  nas::GuardOptions& guard = o.search.guard;
  if (!o.given(guard.strength)) {
    guard.strength = nas::default_guard_strength(o.search, setup.problem->inner_samples());
  }
  return setup;
}

}  // namespace bilevel
