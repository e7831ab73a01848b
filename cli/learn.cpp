// `bilevel learn`: learning across few-shot tasks.

#include "bilevel/jobs/learn.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

void print_learn(const LearnJobResult& result) {
  const LearnJobOptions& o = result.options;
  fmt::print("{}\n{} with network {} ({}): {} numbers learned across tasks, {} for each task\n", result.data,
             o.learner.name, o.network.name, o.network.filters, result.outer_variables,
             result.inner_variables);
  if (!result.regression) {
    fmt::print("tasks of {} classes, {} examples of each\n", o.data.shape.ways, o.data.shape.shots);
  }
  fmt::print("\n{:>10}{:>10}{:>15}{:>20}\n", "iteration", "seconds", "training loss",
             result.regression ? "validation loss" : "validation");
  const meta::LearnState& state = result.summary.state;
  for (const meta::LearnRecord& r : state.history) {
    fmt::print("{:>10}{:>10.1f}{:>15}{:>20}\n", r.iteration, r.seconds,
               std::isfinite(r.outer_loss) ? fmt::format("{:.4f}", r.outer_loss) : "-",
               score_text(r.valid, result.regression));
  }
  if (result.summary.test.tasks > 0) {
    fmt::print("\ntest {}: {} over {} tasks of classes never seen (95 % interval)\n",
               result.regression ? "loss" : "accuracy", score_text(result.summary.test, result.regression),
               result.summary.test.tasks);
    fmt::print(
        "measured with the model after iteration {}, the best on the validation tasks, which is kept\n",
        state.best_iteration);
    if (result.baseline.test.tasks > 0) {
      fmt::print("logistic regression on the raw inputs of the same tasks: {}{}\n",
                 score_text(result.baseline.test, false),
                 result.returns_baseline() ? "; better on the validation tasks, and therefore returned"
                 : result.beats_baseline() ? ""
                                           : "; the learned model is no better");
    }
  }
  fmt::print("{} iterations, {:.1f} s; {} inner and {} outer gradients, {} Hessian and {} cross products\n",
             state.algorithm.iteration, state.seconds, state.counts.inner_gradient,
             state.counts.outer_gradient, state.counts.hessian, state.counts.cross);
  fmt::print("linear solves: {}\n", statuses_text(state.statuses));
}

}  // namespace

void add_learn_command(CLI::App& app, int& exit_code) {
  add_job<LearnJobOptions>(app, exit_code,
                           {"learn", "Learn across few-shot tasks (AID, ITD, ANIL, MAML, iMAML, K-RMD)",
                            "Each iteration takes some tasks, learns each from its few training examples by "
                            "inner steps, and moves what the\n"
                            "tasks share by the derivative of their validation loss through those steps or "
                            "through their solution.\n"
                            "Examples:\n"
                            "  bilevel learn --learner aid\n"
                            "  bilevel learn --data sinusoids --learner maml\n"
                            "  bilevel learn --data omniglot --data-dir data --learner hyper-representation "
                            "--truncate 10 --filters 16 \\\n"
                            "                --iterations 300\n"
                            "  bilevel learn --data my-classes/ --image-size 32 --shots 5 --learner anil\n"
                            "  bilevel learn --resume runs/learn-20260101-120000-0"},
                           run_learn, print_learn);
}

}  // namespace bilevel::cli
