#pragma once
// What `bilevel interact` found, as JSON, as text and as files.

#include <cstdint>
#include <string>

#include "bilevel/interact/interact.h"
#include "bilevel/problems/task_sets.h"
#include "cli/json.h"

namespace bilevel::cli {

struct InteractOutput {
  const TaskSets& sets;
  const InteractReport& report;
  std::string data;      // synthetic, or the training file
  int64_t records = 50;  // of the history, about
};

Json interact_json(const InteractOutput& output);
void print_interact(const Json& json);
// interaction.npy, interaction.csv, model.npy, and interaction.svg where gnuplot is here. Returns the names
// of what was written.
std::vector<std::string> write_interact(const InteractOutput& output, const Json& json,
                                        const std::string& folder);

}  // namespace bilevel::cli
