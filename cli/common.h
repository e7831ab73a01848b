#pragma once
// What every command shares: how much is printed, and the exit codes.

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
  bool json = false;
  bool quiet = false;  // the level `warning`
  std::string log_level = "info";
};

enum class LogLevel { error, warning, info, debug };
bool says(const CommonOptions& options, LogLevel level);  // whether stderr gets what is of this level

}  // namespace bilevel::cli
