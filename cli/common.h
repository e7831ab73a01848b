#pragma once
// What every command shares: the options that are parsed once for all (threads, device, dtype, how much is
// said), and the exit codes.

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>

namespace bilevel::cli {

enum ExitCode {
  success = 0,
  failure = 1,
  bad_input = 2,
  not_finite = 3,
  interrupted = 130  // by a signal, with the state saved: what shells expect
};

struct CommonOptions {
  std::string device = "cpu";
  std::string dtype = "double";
  int threads = 0;  // 0 = all cores
  bool json = false;
  bool quiet = false;  // the level `warning`
  std::string log_level = "info";
};
void add_common_options(CLI::App& command, CommonOptions& options);
// Sets the threads and returns dtype and device; throws std::invalid_argument where they cannot be had.
at::TensorOptions apply_common_options(const CommonOptions& options);

enum class LogLevel { error, warning, info, debug };
bool says(const CommonOptions& options, LogLevel level);  // whether stderr gets what is of this level

}  // namespace bilevel::cli
