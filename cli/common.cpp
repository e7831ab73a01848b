#include "cli/common.h"

#include <algorithm>

namespace bilevel::cli {

bool says(const CommonOptions& options, LogLevel level) {
  LogLevel most = LogLevel::info;
  if (options.log_level == "error") most = LogLevel::error;
  if (options.log_level == "warning") most = LogLevel::warning;
  if (options.log_level == "debug") most = LogLevel::debug;
  if (options.quiet) most = std::min(most, LogLevel::warning);
  return level <= most;
}

}  // namespace bilevel::cli
