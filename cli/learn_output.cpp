#include "cli/learn_output.h"

#include <fmt/format.h>

#include <cmath>

#include "bilevel/meta/learn_checkpoint.h"

namespace bilevel::cli {
namespace {

std::string score_text(const meta::TaskScore& score, bool regression) {
  return regression ? fmt::format("{:.4g} +- {:.2g}", score.loss, score.loss_interval)
                    : fmt::format("{:.1f} +- {:.1f} %", score.accuracy, score.accuracy_interval);
}

}  // namespace

Json learn_json(const LearnOutput& o) {
  const LearnSettings& s = o.settings;
  const meta::LearnState& state = o.summary.state;
  Json out = {{"learner", s.learner.name},
              {"data", s.data.data},
              {"folder", o.folder},
              {"ways", s.data.shape.ways},
              {"shots", s.data.shape.shots},
              {"queries", s.data.shape.queries},
              {"network", s.network.name},
              {"filters", s.network.filters},
              {"outer_variables", o.learner.outer_layout().size()},
              {"inner_variables", o.learner.task_parameters()},
              {"inner_steps", s.learner.inner_steps},
              {"truncate", s.learner.truncate},
              {"terms", s.learner.terms},
              {"inner_rate", s.learner.inner_rate},
              {"outer_rate", s.learn.outer.rate},
              {"meta_batch", s.learn.meta_batch},
              {"seed", s.learn.seed},
              {"stopped", name_of(o.summary.end)},
              {"iterations", state.algorithm.iteration},
              {"test_accuracy", number(o.summary.test.tasks > 0 ? o.summary.test.accuracy : NAN)},
              {"test_interval", number(o.summary.test.tasks > 0 ? o.summary.test.accuracy_interval : NAN)},
              {"test_loss", number(o.summary.test.tasks > 0 ? o.summary.test.loss : NAN)},
              {"test_loss_interval", number(o.summary.test.tasks > 0 ? o.summary.test.loss_interval : NAN)},
              {"test_tasks", o.summary.test.tasks},
              {"counts", counts_json(state.counts)},
              {"linear_solves", state.statuses},
              {"bytes_kept", state.bytes_kept},
              {"seconds", state.seconds}};
  if (!o.summary.reason.empty()) out["message"] = o.summary.reason;
  out["seconds_per_iteration"] = state.algorithm.iteration > 0
                                     ? number(state.seconds / static_cast<double>(state.algorithm.iteration))
                                     : Json(nullptr);
  out["history"] = Json::array();
  for (const meta::LearnRecord& record : state.history) out["history"].push_back(meta::record_json(record));
  return out;
}

std::string record_line(const meta::LearnRecord& r, int64_t iterations, bool regression) {
  return fmt::format("iteration {}/{}: {} {} on {} validation tasks{}, {:.1f} s", r.iteration, iterations,
                     regression ? "loss" : "accuracy", score_text(r.valid, regression), r.valid.tasks,
                     std::isfinite(r.outer_loss) ? fmt::format(", training loss {:.4f}", r.outer_loss) : "",
                     r.seconds);
}

void print_learn(const LearnOutput& o) {
  const LearnSettings& s = o.settings;
  fmt::print("{}\n{} with network {} ({}): {} numbers learned across tasks, {} for each task\n", o.data,
             s.learner.name, s.network.name, s.network.filters, o.learner.outer_layout().size(),
             o.learner.task_parameters());
  if (!o.regression)
    fmt::print("tasks of {} classes, {} examples of each\n", s.data.shape.ways, s.data.shape.shots);
  fmt::print("\n{:>10}{:>10}{:>15}{:>20}\n", "iteration", "seconds", "training loss",
             o.regression ? "validation loss" : "validation");
  const meta::LearnState& state = o.summary.state;
  for (const meta::LearnRecord& r : state.history) {
    fmt::print("{:>10}{:>10.1f}{:>15}{:>20}\n", r.iteration, r.seconds,
               std::isfinite(r.outer_loss) ? fmt::format("{:.4f}", r.outer_loss) : "-",
               score_text(r.valid, o.regression));
  }
  if (o.summary.test.tasks > 0) {
    fmt::print("\ntest {}: {} over {} tasks of classes never seen (95 % interval)\n",
               o.regression ? "loss" : "accuracy", score_text(o.summary.test, o.regression),
               o.summary.test.tasks);
  }
  fmt::print("{} iterations, {:.1f} s; {} inner and {} outer gradients, {} Hessian and {} cross products\n",
             state.algorithm.iteration, state.seconds, state.counts.inner_gradient,
             state.counts.outer_gradient, state.counts.hessian, state.counts.cross);
  fmt::print("linear solves: {}\n", statuses_text(state.statuses));
}

}  // namespace bilevel::cli
