#include "bilevel/jobs/learn.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/jobs/unread.h"
#include "bilevel/meta/learn_checkpoint.h"
#include "bilevel/meta/model_file.h"
#include "bilevel/run/kept_loop.h"
#include "bilevel/run/result_json.h"

namespace bilevel {

std::string score_text(const meta::TaskScore& score, bool regression) {
  return regression ? fmt::format("{:.4g} +- {:.2g}", score.loss, score.loss_interval)
                    : fmt::format("{:.1f} +- {:.1f} %", score.accuracy, score.accuracy_interval);
}

namespace {

// ---- options ----

// What was found to learn well in a minute or so on points, and in minutes on images; the papers' numbers
// where they give them (stocBiO's appendix B, K-RMD's G.3).
void set_learn_defaults(LearnJobOptions& o) {
  const std::string data = o.data.data, learner = o.learner.name;
  o.learner = meta::default_learner_options(learner);
  o.learn = {};
  o.data.shape = {};
  const bool points = meta::are_points(data);
  if (points) {
    o.network = {.name = "mlp", .filters = 64};
    o.learn.iterations = 300;
    o.learn.meta_batch = 8;
    o.learn.outer.rate = learner == "itd" ? 0.001 : 0.003;
    o.learn.valid_tasks = 100;
    o.learn.test_tasks = 400;
    o.learn.tasks_at_once = 100;
  } else {
    o.network = {.name = data == "omniglot" ? "omniglot" : "conv4", .filters = 64};
    o.learn.iterations = 1000;
    o.learn.meta_batch = data == "omniglot" ? 4 : 32;
    o.learn.outer.rate = 0.001;
    if (learner == "aid" || learner == "itd") o.learner.inner_rate = 0.1;
    if (learner == "anil") o.learner.inner_steps = data == "fc100" ? 10 : 5;
    if (learner == "maml") o.learner.inner_rate = 0.5;
  }
  if (data == "sinusoids") {
    o.data.shape.shots = 10;
    o.data.shape.queries = 10;
    // Inputs as far as 5 from zero and squares: steeper than classes by a hundred times.
    o.learner.inner_rate = learner == "aid" ? 0.0003 : 0.001;
    if (learner == "aid") o.learner.inner_steps = 50;
    if (learner == "imaml") o.learn.outer.rate = 0.001;
  } else if (data != "blobs" && data != "omniglot") {
    o.data.shape.shots = 5;
    if (!points) o.network.filters = data == "fc100" ? 64 : 32;
  }
  if (data == "omniglot" && learner == "hyper-representation") o.learn.outer.rate = 0.01;
}

void complete_learning(LearnJobOptions& o) {
  LearnJobOptions given = o;
  set_learn_defaults(o);
  OptionsView view(o);
  view.take_given(OptionsView(given));
  o.learn.seed = o.data.seed;
  std::vector<ChoiceReads> learners;
  for (const std::string& name : meta::learner_names()) {
    learners.push_back({name, meta::options_read_by(name)});
  }
  refuse_unread(view, "learner", o.learner.name, learners);
  // Fewer steps than the default goes back through are all of them.
  if (!o.given(o.learner.truncate) && o.learner.truncate >= o.learner.inner_steps) o.learner.truncate = 0;
  o.learner.validate();
  o.network.validate();
  o.learn.validate();
}

// ---- the work ----

// A run that is resumed on anything else is refused.
nlohmann::json learn_identity(const LearnJobOptions& o, const meta::Learner& learner,
                              const meta::TaskData& data) {
  return {{"data", data.digest.empty() ? data.name : data.digest},
          {"learner", o.learner.name},
          {"network", o.network.name},
          {"outer_variables", learner.outer_layout().size()},
          {"meta_batch", o.learn.meta_batch},
          {"seed", o.learn.seed}};
}

meta::LearnState resumed_learning(const Checkpoint& checkpoint, const nlohmann::json& now,
                                  const RunContext& context, const meta::Learner& learner,
                                  c10::Device device) {
  require_identity(
      context, checkpoint, {{"identity", now}},
      fmt::format(
          "the run was started on different data or with a different learner ({}): give it the original ones",
          now.dump()));
  return meta::learn_state(checkpoint, learner.outer_layout().size(), device);
}

std::string learning_line(const meta::LearnRecord& r, int64_t iterations, bool regression) {
  return fmt::format("iteration {}/{}: {} {} on {} validation tasks{}, {:.1f} s", r.iteration, iterations,
                     regression ? "loss" : "accuracy", score_text(r.valid, regression), r.valid.tasks,
                     std::isfinite(r.outer_loss) ? fmt::format(", training loss {:.4f}", r.outer_loss) : "",
                     r.seconds);
}

meta::LearnSummary learn_in(RunContext& context, const LearnJobOptions& o, const meta::Learner& learner,
                            const meta::TaskData& data) {
  const nlohmann::json identity = learn_identity(o, learner, data);
  const std::optional<Checkpoint> checkpoint = context.load();
  meta::LearnState state =
      checkpoint ? resumed_learning(*checkpoint, identity, context, learner, o.data.tensors.device())
                 : meta::begin_learning(learner, o.learn);
  StepProgress progress{.job = "learn", .total = o.learn.iterations, .before = state.algorithm.iteration};
  const std::string into = context.has_folder() ? " into " + context.folder_name() : "";
  context.line(fmt::format("learn: {}; {}{}", data.summary, o.learner.name, into));
  const bool regression = data.source->regression();
  meta::LearnHooks hooks;
  keep_in<meta::LearnState>(context, hooks, meta::put_learning, {{"identity", identity}});
  hooks.step = [&](const meta::LearnState& at) {
    progress.step = at.algorithm.iteration;
    progress.loss = at.loss_count > 0 ? at.loss_sum / static_cast<double>(at.loss_count) : NAN;
    progress.direction_norm = at.direction_norm;
    context.step(progress);
  };
  hooks.record = [&](const meta::LearnRecord& record) {
    Json line = {{"step", record.iteration}};
    line.update(meta::record_json(record));
    context.record(line);
    progress.more = regression ? fmt::format("validation {:.4g}", record.valid.loss)
                               : fmt::format("validation {:.1f} %", record.valid.accuracy);
    context.line(learning_line(record, o.learn.iterations, regression));
  };
  return meta::learn(learner, *data.source, o.learn, std::move(state), hooks, context.group().get());
}

// ---- its result ----

Json learn_json(const LearnJobResult& r) {
  const LearnJobOptions& o = r.options;
  const meta::LearnState& state = r.summary.state;
  const meta::TaskScore& test = r.test();
  const auto tested = [&](double value) { return number(test.tasks > 0 ? value : NAN); };
  const auto baseline = [&](double value) { return number(r.baseline.test.tasks > 0 ? value : NAN); };
  Json out = {{"learner", o.learner.name}, {"data", o.data.data}};
  if (!r.folder.empty()) out["folder"] = r.folder;
  out.update(Json{{"ways", o.data.shape.ways},
                  {"shots", o.data.shape.shots},
                  {"queries", o.data.shape.queries},
                  {"network", o.network.name},
                  {"filters", o.network.filters},
                  {"outer_variables", r.outer_variables},
                  {"inner_variables", r.inner_variables},
                  {"inner_steps", o.learner.inner_steps},
                  {"truncate", o.learner.truncate},
                  {"terms", o.learner.terms},
                  {"inner_rate", o.learner.inner_rate},
                  {"outer_rate", o.learn.outer.rate},
                  {"meta_batch", o.learn.meta_batch},
                  {"seed", o.learn.seed},
                  {"stopped", name_of(r.summary.end)},
                  {"iterations", state.algorithm.iteration},
                  {"test_accuracy", tested(test.accuracy)},
                  {"test_interval", tested(test.accuracy_interval)},
                  {"test_loss", tested(test.loss)},
                  {"test_loss_interval", tested(test.loss_interval)},
                  {"test_tasks", test.tasks},
                  {"best_iteration", state.best_iteration},
                  {"best_valid_accuracy", number(state.best_valid.accuracy)},
                  {"best_valid_loss", number(state.best_valid.loss)},
                  {"returned", r.returns_baseline() ? "raw_inputs" : "learned"},
                  {"learned_test_accuracy", tested(r.summary.test.accuracy)},
                  {"learned_test_interval", tested(r.summary.test.accuracy_interval)},
                  {"baseline_valid_accuracy", baseline(r.baseline.valid.accuracy)},
                  {"baseline_test_accuracy", baseline(r.baseline.test.accuracy)},
                  {"baseline_test_interval", baseline(r.baseline.test.accuracy_interval)},
                  {"counts", counts_json(state.counts)},
                  {"linear_solves", state.statuses},
                  {"bytes_kept", state.bytes_kept},
                  {"seconds", state.seconds}});
  if (!r.summary.reason.empty()) out["message"] = r.summary.reason;
  out["seconds_per_iteration"] = state.algorithm.iteration > 0
                                     ? number(state.seconds / static_cast<double>(state.algorithm.iteration))
                                     : Json(nullptr);
  out["history"] = Json::array();
  for (const meta::LearnRecord& record : state.history) out["history"].push_back(meta::record_json(record));
  return out;
}

JobEnd end_of_learning(const meta::LearnSummary& summary) {
  if (summary.end == meta::LearnEnd::interrupted) return {.status = RunStatus::interrupted};
  if (summary.end != meta::LearnEnd::failed) return {};
  return {RunStatus::failed, summary.reason, EndCause::mathematics};
}

LearnJobResult run_on(const meta::ImageTaskSet* images, LearnJobOptions o, RunContext& context) {
  LearnJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
  complete_learning(o);
  o.data.tensors = apply(o.compute, context);
  const meta::TaskData data =
      images == nullptr ? meta::load_task_data(o.data) : meta::task_data_of(*images, o.data);
  const meta::TaskSource& source = *data.source;
  const meta::Learner learner(
      o.learner, meta::make_network(o.network, source.input_shape(), source.outputs()), o.data.tensors);
  context.agree("data", learn_identity(o, learner, data));
  context.open("learn", o.learn.seed, OptionsView(o));
  LearnJobResult result{.options = o, .data = data.summary, .regression = source.regression()};
  result.outer_variables = learner.outer_layout().size();
  result.inner_variables = learner.task_parameters();
  result.folder = context.folder_name();
  context.work([&] {
    result.summary = learn_in(context, o, learner, data);
    const meta::LearnState& learned = result.summary.state;
    if (result.summary.end == meta::LearnEnd::iterations_done && !result.regression) {
      context.progress("learn: the baseline on raw inputs");
      result.baseline = raw_input_baseline(source, o.learn.valid_tasks, o.learn.test_tasks);
      if (result.returns_baseline()) {
        context.warning(
            fmt::format("logistic regression on the raw inputs of each task does better on the validation "
                        "tasks ({} against {}), and is returned in place of the learned model: more training "
                        "classes, more iterations or another learner may help",
                        score_text(result.baseline.valid, false), score_text(learned.best_valid, false)));
      } else if (!result.beats_baseline()) {
        context.warning(fmt::format(
            "logistic regression on the raw inputs of each task does as well or better ({} against {}): more "
            "training classes, more iterations or another learner may help; otherwise use the regression",
            score_text(result.baseline.test, false), score_text(result.summary.test, false)));
      }
    }
    result.json = learn_json(result);
    add_communication(context, result.json);
    result.end = end_of_learning(result.summary);
    if (context.has_folder() && result.end.status != RunStatus::failed) {
      write_files(result.end, [&] {
        meta::save_model(context.folder().file("model"),
                         {.data = o.data.data,
                          .learner = o.learner,
                          .network = o.network,
                          .input = source.input_shape(),
                          .outputs = source.outputs(),
                          .regression = result.regression,
                          .scale = data.scale,
                          .rows = data.rows,
                          .iterations = learned.best_iteration,
                          .raw_penalty = result.returns_baseline() ? result.baseline.penalty : 0,
                          .x = learned.best_x});
        result.files = {"model", "checkpoint", "metrics.jsonl"};
      });
    }
    context.end(result.end.status, result.end.message, result.json);
  });
  return result;
}

}  // namespace

LearnJobResult run_learn(LearnJobOptions options, RunContext& context) {
  return run_on(nullptr, std::move(options), context);
}

LearnJobResult run_learn_on(const meta::ImageTaskSet& images, LearnJobOptions options, RunContext& context) {
  options.data.data.clear();  // neither a name nor a path: defaults are those of images
  return run_on(&images, std::move(options), context);
}

}  // namespace bilevel
