#pragma once
// What `bilevel learn` says at its end: a table for people, one JSON object for
// programs.

#include <string>

#include "bilevel/meta/learn.h"
#include "cli/json.h"
#include "cli/learn_flags.h"

namespace bilevel::cli {

struct LearnOutput {
  const LearnSettings& settings;
  const meta::Learner& learner;
  const meta::LearnSummary& summary;
  std::string data;  // one line on what was found
  std::string folder;
  bool regression = false;
};

Json learn_json(const LearnOutput& output);
void print_learn(const LearnOutput& output);
std::string record_line(const meta::LearnRecord& record, int64_t iterations, bool regression);

}  // namespace bilevel::cli
