#include "reproduce/meta.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/errors.h"

namespace bilevel::reproduce {
namespace {

constexpr int64_t small_image_size = 16;  // the smallest that four poolings leave a pixel of

bool is_known(const std::string& name) {
  const std::vector<std::string> names = meta::task_data_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

meta::Learner FewShotGround::learner(const meta::LearnerOptions& options,
                                     const at::TensorOptions& tensors) const {
  return {options, meta::make_network(network, data.source->input_shape(), data.source->outputs()), tensors};
}

FewShotGround few_shot_ground(const std::vector<std::string>& wanted, const meta::TaskShape& shape,
                              const std::string& network, int64_t small_filters,
                              const ReproduceOptions& options) {
  const std::string folder = options.data_dir.empty() ? "../shared/data" : options.data_dir;
  FewShotGround ground;
  std::vector<std::string> missing;
  for (const std::string& name : wanted) {
    options.progress("reading " + name);
    meta::TaskDataOptions data{.data = is_known(name) ? name : folder + "/" + name,
                               .folder = folder,
                               .shape = shape,
                               .seed = options.seed,
                               .tensors = options.tensors};
    if (!options.full() && name != "fc100") data.image_size = small_image_size;
    try {
      ground.data = meta::load_task_data(data);
    } catch (const std::runtime_error& error) {
      // Files that are there and cannot be read are no reason to take others.
      if (std::filesystem::is_directory(folder + "/" + name)) throw;
      missing.push_back(fmt::format("{} ({})", name, error.what()));
      continue;
    } catch (const std::invalid_argument&) {
      if (is_known(name) || std::filesystem::is_directory(data.data)) throw;
      missing.push_back(fmt::format("{} (no folder {})", name, data.data));
      continue;
    }
    ground.network = {.name = network, .filters = options.full() ? 64 : small_filters};
    break;
  }
  if (!ground.data.source) {
    ground.data = meta::load_task_data(
        {.data = "blobs", .shape = shape, .seed = options.seed, .tensors = options.tensors});
    ground.network = {.name = "mlp", .filters = options.full() ? 64 : 32};
  }
  ground.note = fmt::format("{}; {}-way, {}-shot; network {} with {}", ground.data.summary, shape.ways,
                            shape.shots, ground.network.name, ground.network.filters);
  if (!missing.empty()) {
    ground.note += fmt::format(". Not found: {}; so these are another set's numbers than the paper's",
                               fmt::join(missing, "; "));
  }
  return ground;
}

double FewShotCurve::seconds_per_iteration() const {
  return last().seconds / static_cast<double>(std::max<int64_t>(1, last().iteration));
}

FewShotCurve run_few_shot(const FewShotGround& ground, const FewShotRun& run,
                          const ReproduceOptions& options) {
  const meta::Learner learner = ground.learner(run.learner, options.tensors);
  const meta::TaskSource& source = *ground.data.source;
  meta::LearnOptions learn{.iterations = std::numeric_limits<int64_t>::max(), .meta_batch = run.meta_batch};
  learn.outer.rate = run.outer_rate;
  learn.seed = run.seed;
  learn.records = 0;
  learn.valid_tasks = 1;  // its own look at the start is not used
  const bool by_time = run.iterations.empty();
  const auto now = [&] { return options.tensors.device().is_cpu() ? processor_seconds() : wall_seconds(); };
  double seconds = 0;
  const size_t count = by_time ? run.seconds.size() : run.iterations.size();

  FewShotCurve curve;
  curve.label = run.label;
  meta::LearnState state = meta::begin_learning(learner, learn);
  const auto score = [&](meta::Part part, int64_t tasks) {
    if (tasks == 0) return meta::TaskScore{};
    return meta::score_tasks(learner, source, state.algorithm.x, part, tasks, learn.tasks_at_once,
                             state.algorithm.iteration);
  };
  for (size_t i = 0; i < count; ++i) {
    bool there = !by_time && run.iterations[i] == 0;
    double before = now();
    meta::LearnHooks hooks;
    hooks.record = [&](const meta::LearnRecord&) { before = now(); };
    hooks.step = [&](const meta::LearnState& s) {
      const double after = now();
      seconds += after - before;
      before = after;
      there = by_time ? seconds >= run.seconds[i] : s.algorithm.iteration >= run.iterations[i];
      options.progress(fmt::format("{}: iteration {}, {:.0f} s", run.label, s.algorithm.iteration, seconds));
    };
    hooks.interrupted = [&] { return there; };
    try {
      if (!there) state = meta::learn(learner, source, learn, state, hooks).state;
      const FewShotPoint point{.iteration = state.algorithm.iteration,
                               .seconds = seconds,
                               .outer_loss = state.loss_count > 0
                                                 ? state.loss_sum / static_cast<double>(state.loss_count)
                                                 : std::numeric_limits<double>::quiet_NaN(),
                               .train = score(meta::Part::train, run.train_tasks),
                               .valid = score(meta::Part::valid, run.valid_tasks),
                               .test = score(meta::Part::test, run.test_tasks)};
      curve.points.push_back(point);
      if (run.look) run.look(state);
    } catch (const NotFiniteError& error) {
      if (curve.points.empty()) throw std::runtime_error(run.label + ": " + error.what());
      curve.failure = error.what();
      break;
    }
    state.loss_sum = 0;
    state.loss_count = 0;
  }
  curve.state = std::move(state);
  return curve;
}

std::string score_text(const meta::TaskScore& score) {
  if (score.tasks == 0) return "-";
  return fmt::format("{:.1f} +- {:.1f}", score.accuracy, score.accuracy_interval);
}

}  // namespace bilevel::reproduce
