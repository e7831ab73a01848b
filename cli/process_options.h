#pragma once
// What is of one process and not of what it computes: where its run is kept, and how much it says.

#include <string>

#include "bilevel/distributed/process_group.h"
#include "bilevel/fields/fields.h"
#include "cli/common.h"

namespace bilevel::cli {

struct ProcessOptions {
  std::string out = {}, resume = {}, config = {};
  double save_seconds = 10;
  bool json = false;
  bool quiet = false;  // the level `warning`
  bool tensorboard = false;
  std::string log_level = "info";
  GroupOptions group = {};  // of several processes that do the job together
  Given given = {};
  static const Fields<ProcessOptions>& fields();
};
// For jobs that can be resumed but have no steps: neither checkpoints now and then nor records of steps.
struct WholeRunOptions : ProcessOptions {
  static const Fields<WholeRunOptions>& fields();
};
// For jobs that keep no run.
struct OutputOptions {
  ProcessOptions process = {};
  Given given = {};
  static const Fields<OutputOptions>& fields();
};
// For jobs that keep their results in a folder and cannot be resumed.
struct KeptOptions {
  ProcessOptions process = {};
  Given given = {};
  static const Fields<KeptOptions>& fields();
};

CommonOptions common_options(const ProcessOptions& process);

}  // namespace bilevel::cli
