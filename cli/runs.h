#pragma once
// One run as `bilevel show` prints it.

#include <string>

#include "bilevel/run/json.h"
#include "bilevel/run/run_folder.h"

namespace bilevel::cli {

struct WholeRun {
  RunFacts facts;
  Json config = {}, summary = {};  // null while it has none
  Metrics metrics = {};
  Json json = {};
};
// Throws where there is no run or its files are damaged, naming them.
WholeRun read_whole_run(const std::string& folder);
void print_run(const WholeRun& run);

}  // namespace bilevel::cli
