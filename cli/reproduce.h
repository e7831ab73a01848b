#pragma once
// The papers' experiments, each as one function that runs it at a scale, prints what came out and says which
// of the paper's claims hold.

#include <cstdint>
#include <string>

#include "cli/common.h"
#include "cli/json.h"

namespace bilevel::cli {

struct ReproduceOptions {
  std::string scale = "quick";  // or full
  std::string data_dir;         // empty = the usual place
  uint64_t seed = 0;
  CommonOptions common;
  std::string out;  // folder for the curves; empty = none
};

// Each returns {item, scale, claims: [{claim, holds, why}], rows: [...]}, and prints a table unless
// options.common.json.
Json reproduce_newsgroups(const ReproduceOptions& options);  // stocBiO, Figures 2 and 3

}  // namespace bilevel::cli
