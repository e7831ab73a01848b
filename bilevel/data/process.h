#pragma once
// Runs another program and waits for it, without a shell: no argument can become a command.

#include <string>
#include <vector>

namespace bilevel {

struct ProcessResult {
  bool found = false;       // the program exists and could be started
  int status = -1;          // its exit status, or 128 + the signal that ended it
  std::string output_tail;  // the last few kilobytes of what it printed, both streams

  bool succeeded() const { return found && status == 0; }
};

// arguments[0] is looked up in PATH; it runs in `folder` with nothing to read.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& folder);

}  // namespace bilevel
