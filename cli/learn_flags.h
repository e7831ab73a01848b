#pragma once
// The options of `bilevel learn`. Defaults depend on the data and the learner;
// what is given counts.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/meta/learn.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/task_data.h"
#include "cli/common.h"
#include "cli/run_options.h"

namespace bilevel::cli {

struct LearnSettings {
  meta::TaskDataOptions data;
  meta::NetworkOptions network;
  meta::LearnerOptions learner;
  meta::LearnOptions learn;
};

struct LearnFlags {
  CommonOptions common;
  RunFlags run;
  std::string learner = "aid";
  LearnSettings given;
  std::vector<std::pair<std::string, std::function<void(LearnSettings&)>>> settings;
};

void add_learn_options(CLI::App& command, LearnFlags& flags);
// The defaults of the data and the learner, with what was given in their place.
LearnSettings learn_settings(const CLI::App& command, const LearnFlags& flags);

}  // namespace bilevel::cli
