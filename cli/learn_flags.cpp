#include "cli/learn_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bilevel::cli {
namespace {

template <typename Field>
CLI::Option* add_setting(CLI::App& group, LearnFlags& o, const std::string& name, Field field,
                         const std::string& help) {
  o.settings.emplace_back(name, [&o, field](LearnSettings& target) { field(target) = field(o.given); });
  return group.add_option(name, field(o.given), help);
}

// What was found to learn well in a minute or so on points, and in minutes on
// images; the papers' numbers where they give them (stocBiO's appendix B,
// K-RMD's G.3).
LearnSettings defaults_of(const std::string& data, const std::string& learner) {
  LearnSettings s;
  s.data.data = data;
  s.learner = meta::default_learner_options(learner);
  const bool points = data == "blobs" || data == "sinusoids";
  if (points) {
    s.network = {.name = "mlp", .filters = 64};
    s.learn.iterations = 300;
    s.learn.meta_batch = 8;
    s.learn.outer.rate = learner == "itd" ? 0.001 : 0.003;
    s.learn.valid_tasks = 100;
    s.learn.test_tasks = 400;
    s.learn.tasks_at_once = 100;
  } else {
    s.network = {.name = data == "omniglot" ? "omniglot" : "conv4", .filters = 64};
    s.learn.iterations = 1000;
    s.learn.meta_batch = data == "omniglot" ? 4 : 32;
    s.learn.outer.rate = 0.001;
    if (learner == "aid" || learner == "itd") s.learner.inner_rate = 0.1;
    if (learner == "anil") s.learner.inner_steps = data == "fc100" ? 10 : 5;
    if (learner == "maml") s.learner.inner_rate = 0.5;
  }
  if (data == "sinusoids") {
    s.data.shape.shots = 10;
    s.data.shape.queries = 10;
    // Inputs as far as 5 from zero and squares: steeper than classes by a hundred times.
    s.learner.inner_rate = learner == "aid" ? 0.0003 : 0.001;
    if (learner == "aid") s.learner.inner_steps = 50;
    if (learner == "imaml") s.learn.outer.rate = 0.001;
  } else if (!points && data != "omniglot") {
    s.data.shape.shots = 5;
    s.network.filters = data == "fc100" ? 64 : 32;
  }
  if (data == "omniglot" && learner == "hyper-representation") s.learn.outer.rate = 0.01;
  return s;
}

}  // namespace

void add_learn_options(CLI::App& command, LearnFlags& o) {
  using S = LearnSettings;
  o.common.dtype = "float";
  auto* tasks = command.add_option_group("tasks");
  tasks
      ->add_option(
          "--data", o.given.data.data,
          fmt::format(
              "{}; or a folder with a folder of PNG files for each class, perhaps below train, val and test",
              fmt::join(meta::task_data_names(), ", ")))
      ->capture_default_str();
  tasks->add_option("--data-dir", o.given.data.folder, "where sets known by name are")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  tasks
      ->add_option("--image-size", o.given.data.image_size,
                   "rescale to this height and width; 0 = the data's")
      ->capture_default_str();
  add_setting(
      *tasks, o, "--ways", [](S & s) -> auto& { return s.data.shape.ways; }, "N: classes of a task (5)");
  add_setting(
      *tasks, o, "--shots", [](S & s) -> auto& { return s.data.shape.shots; },
      "k: training examples of a class (1; fc100 and folders 5; sinusoids 10)");
  add_setting(
      *tasks, o, "--queries", [](S & s) -> auto& { return s.data.shape.queries; },
      "validation examples of a class (15)");

  auto* learner = command.add_option_group("learner; defaults depend on the data and the learner");
  learner->add_option("--learner", o.learner, fmt::format("{}", fmt::join(meta::learner_names(), ", ")))
      ->check(CLI::IsMember(meta::learner_names()))
      ->capture_default_str();
  add_setting(
      *learner, o, "--network", [](S & s) -> auto& { return s.network.name; }, "omniglot, conv4 or mlp");
  add_setting(
      *learner, o, "--filters", [](S & s) -> auto& { return s.network.filters; },
      "of each convolution, or units of mlp's dense layers");
  add_setting(
      *learner, o, "--inner-steps", [](S & s) -> auto& { return s.learner.inner_steps; },
      "T: steps with which a task is learned");
  add_setting(
      *learner, o, "--growth", [](S & s) -> auto& { return s.learner.growth; },
      "c: T grows as c (k+1)^(1/4) with the iterations (AID-BiO increasing); 0 = T as given");
  add_setting(
      *learner, o, "--inner-rate", [](S & s) -> auto& { return s.learner.inner_rate; },
      "of these steps; hyper-representation learns it from here");
  add_setting(
      *learner, o, "--terms", [](S & s) -> auto& { return s.learner.terms; },
      "CG steps of aid and imaml, at most");
  add_setting(
      *learner, o, "--tolerance", [](S & s) -> auto& { return s.learner.tolerance; },
      "relative residual at which a task's CG ends; 0 = all the steps");
  add_setting(
      *learner, o, "--curvature", [](S & s) -> auto& { return s.learner.curvature; },
      "of CG: hessian, or gauss-newton (imaml)")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}));
  add_setting(
      *learner, o, "--truncate", [](S & s) -> auto& { return s.learner.truncate; },
      "K: go back through the last K steps, of itd and hyper-representation; 0 = all");
  add_setting(
      *learner, o, "--ridge", [](S & s) -> auto& { return s.learner.ridge; }, "of the heads of aid and itd");
  add_setting(
      *learner, o, "--proximal", [](S & s) -> auto& { return s.learner.proximal; },
      "lambda of imaml's lambda/2 |w - x|^2");
  add_setting(
      *learner, o, "--centre-weight", [](S & s) -> auto& { return s.learner.centre_weight; },
      "where hyper-representation's rho begin");

  auto* outer = command.add_option_group("learning");
  add_setting(
      *outer, o, "--iterations", [](S & s) -> auto& { return s.learn.iterations; }, "outer steps");
  add_setting(
      *outer, o, "--meta-batch", [](S & s) -> auto& { return s.learn.meta_batch; }, "tasks of an iteration");
  add_setting(
      *outer, o, "--outer", [](S & s) -> auto& { return s.learn.outer.optimizer; }, "adam or sgd")
      ->check(CLI::IsMember(outer_optimizer_names()));
  add_setting(
      *outer, o, "--outer-rate", [](S & s) -> auto& { return s.learn.outer.rate; }, "of the outer optimiser");
  add_setting(
      *outer, o, "--records", [](S & s) -> auto& { return s.learn.records; },
      "about how often validation tasks are looked at");
  add_setting(
      *outer, o, "--valid-tasks", [](S & s) -> auto& { return s.learn.valid_tasks; },
      "how many, always the same");
  add_setting(
      *outer, o, "--test-tasks", [](S & s) -> auto& { return s.learn.test_tasks; },
      "M: tasks of test classes at the end");
  outer->add_option("--seed", o.given.data.seed, "of the tasks, of x, and of omniglot's parts")
      ->capture_default_str();
  add_run_options(command, o.run);
  add_common_options(command, o.common);
}

namespace {

// An option that would be ignored is an error: its user believes that it did something.
void refuse_ignored(const CLI::App& command, const LearnFlags& o) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> readers = {
      {"--terms", {"aid", "imaml"}},
      {"--tolerance", {"aid", "imaml"}},
      {"--curvature", {"aid", "imaml"}},
      {"--ridge", {"aid", "itd"}},
      {"--proximal", {"imaml"}},
      {"--centre-weight", {"hyper-representation"}},
      {"--truncate", {"itd", "hyper-representation"}}};
  for (const auto& [option, learners] : readers) {
    if (command.count(option) == 0) continue;
    if (std::find(learners.begin(), learners.end(), o.learner) != learners.end()) continue;
    throw std::invalid_argument(
        fmt::format("{} {} changes nothing for --learner {}: it is of {}; leave it out", option,
                    command.get_option(option)->results().front(), o.learner, fmt::join(learners, ", ")));
  }
}

}  // namespace

LearnSettings learn_settings(const CLI::App& command, const LearnFlags& o) {
  LearnSettings s = defaults_of(o.given.data.data, o.learner);
  s.data.folder = o.given.data.folder;
  s.data.image_size = o.given.data.image_size;
  s.learn.seed = s.data.seed = o.given.data.seed;
  for (const auto& [name, take] : o.settings) {
    if (command.get_option(name)->count() > 0) take(s);
  }
  refuse_ignored(command, o);
  // Fewer steps than the default goes back through are all of them.
  if (command.get_option("--truncate")->count() == 0 && s.learner.truncate >= s.learner.inner_steps) {
    s.learner.truncate = 0;
  }
  s.learner.validate();
  s.network.validate();
  s.learn.validate();
  return s;
}

}  // namespace bilevel::cli
