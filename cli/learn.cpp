// `bilevel learn`: learning across few-shot tasks.

#include "bilevel/meta/learn.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bilevel/meta/learn_checkpoint.h"
#include "bilevel/meta/model_file.h"
#include "bilevel/run/stop_signal.h"
#include "cli/commands.h"
#include "cli/learn_flags.h"
#include "cli/learn_output.h"
#include "cli/progress.h"

namespace bilevel::cli {
namespace {

// A run that is resumed on anything else is refused.
nlohmann::json identity(const LearnSettings& s, const meta::Learner& learner, const meta::TaskData& data) {
  return {{"data", data.digest.empty() ? data.name : data.digest},
          {"learner", s.learner.name},
          {"network", s.network.name},
          {"outer_variables", learner.outer_layout().size()},
          {"meta_batch", s.learn.meta_batch},
          {"seed", s.learn.seed}};
}

meta::LearnState resumed(const Checkpoint& checkpoint, const nlohmann::json& now, const RunFlags& run,
                         const meta::Learner& learner, c10::Device device) {
  if (const auto then = checkpoint.metadata.find("identity");
      then == checkpoint.metadata.end() || *then != now) {
    throw std::runtime_error(
        fmt::format("--resume {}: the run was made on other data or with another learner than now ({}): give "
                    "it what it began with",
                    run.resume, now.dump()));
  }
  return meta::learn_state(checkpoint, learner.outer_layout().size(), device);
}

int run(CLI::App& command, LearnFlags& o) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return success;
  LearnSettings s = learn_settings(command, o);
  o.given = s;  // so that config.json shows what is in use
  s.data.tensors = apply_common_options(o.common);
  const meta::TaskData data = meta::load_task_data(s.data);
  const meta::TaskSource& source = *data.source;
  const meta::Learner learner(
      s.learner, meta::make_network(s.network, source.input_shape(), source.outputs()), s.data.tensors);
  const bool regression = source.regression();

  RunFolder folder = open_run(command, o.run, s.learn.seed);
  int exit_code = success;
  work_in(folder, [&] {
    const nlohmann::json now = identity(s, learner, data);
    const auto checkpoint = load_run(folder, o.run, o.common);
    meta::LearnState state = checkpoint ? resumed(*checkpoint, now, o.run, learner, s.data.tensors.device())
                                        : meta::begin_learning(learner, s.learn);
    RunProgress progress(o.common, "learn", s.learn.iterations, state.algorithm.iteration);
    progress.line(fmt::format("learn: {}; {} into {}", data.summary, s.learner.name, folder.path()));

    const StopSignal on_signal;
    std::string valid;
    const auto save = [&](const meta::LearnState& at) {
      Checkpoint file = meta::learn_checkpoint(at);
      file.metadata["identity"] = now;
      folder.save(std::move(file));
    };
    auto saved = std::chrono::steady_clock::now();
    meta::LearnCallbacks callbacks;
    callbacks.step = [&](const meta::LearnState& at) {
      progress({.step = at.algorithm.iteration,
                .loss = at.loss_count > 0 ? at.loss_sum / static_cast<double>(at.loss_count) : NAN,
                .hypergradient = at.direction_norm,
                .more = valid});
      const auto clock = std::chrono::steady_clock::now();
      if (std::chrono::duration<double>(clock - saved).count() < o.run.save_seconds) return;
      save(at);
      saved = clock;
    };
    callbacks.record = [&](const meta::LearnRecord& record) {
      Json line = {{"step", record.iteration}};
      line.update(meta::record_json(record));
      folder.record(line);
      valid = regression ? fmt::format("validation {:.4g}", record.valid.loss)
                         : fmt::format("validation {:.1f} %", record.valid.accuracy);
      progress.line(record_line(record, s.learn.iterations, regression));
    };
    callbacks.save = save;
    callbacks.interrupted = [] { return stop_requested(); };
    const meta::LearnSummary summary = meta::learn(learner, source, s.learn, std::move(state), callbacks);

    const LearnOutput output{.settings = s,
                             .learner = learner,
                             .summary = summary,
                             .data = data.summary,
                             .folder = folder.path(),
                             .regression = regression};
    const Json json = learn_json(output);
    if (o.common.json) {
      fmt::print("{}\n", json.dump());
    } else {
      print_learn(output);
    }
    const bool failed = summary.end == meta::LearnEnd::failed;
    if (!failed) {
      meta::save_model(folder.file("model"), {.data = s.data.data,
                                              .learner = s.learner,
                                              .network = s.network,
                                              .input = source.input_shape(),
                                              .outputs = source.outputs(),
                                              .regression = regression,
                                              .scale = data.scale,
                                              .iterations = summary.state.algorithm.iteration,
                                              .x = summary.state.algorithm.x});
    }
    if (summary.end == meta::LearnEnd::interrupted) {
      folder.end(RunStatus::interrupted, "", json);
      say_interrupted(command, folder);
      exit_code = interrupted;
    } else if (failed) {
      folder.end(RunStatus::failed, summary.reason, json);
      fmt::print(stderr, "bilevel: {}\n", summary.reason);
      exit_code = not_finite;
    } else {
      folder.end(RunStatus::finished, "", json);
    }
  });
  if (!o.common.json) {
    fmt::print("the run is in {}{}\n", folder.path(),
               exit_code == not_finite ? "" : ", what was learned in its file model");
  }
  return exit_code;
}

}  // namespace

void add_learn_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("learn", "Learn across few-shot tasks (AID, ITD, ANIL, MAML, iMAML, K-RMD)");
  command->footer(
      "Each iteration takes some tasks, learns each from its few training examples by inner steps, and moves "
      "what the\n"
      "tasks share by the derivative of their validation loss through those steps or through their "
      "solution.\n"
      "Examples:\n"
      "  bilevel learn --learner aid\n"
      "  bilevel learn --data sinusoids --learner maml\n"
      "  bilevel learn --data omniglot --data-dir data --learner hyper-representation --truncate 10 "
      "--filters 16 \\\n"
      "                --iterations 300\n"
      "  bilevel learn --data my-classes/ --image-size 32 --shots 5 --learner anil\n"
      "  bilevel learn --resume runs/learn-20260101-120000-0");
  const auto options = std::make_shared<LearnFlags>();
  add_learn_options(*command, *options);
  command->callback([command, options, &exit_code] { exit_code = run(*command, *options); });
}

}  // namespace bilevel::cli
