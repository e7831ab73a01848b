#pragma once
// How a job ended.

#include <exception>
#include <functional>
#include <string>

#include "bilevel/run/run_folder.h"

namespace bilevel {

enum class EndCause {
  none,
  mathematics,  // it left the finite numbers, or nothing came of it
  files,        // the answer is there, but some of it could not be written
};

struct JobEnd {
  RunStatus status = RunStatus::finished;
  std::string message = {};  // of a failure
  EndCause cause = EndCause::none;
};

// Writes a job's files. A full disk must not cost the answer: it ends as failed, with the message.
inline void write_files(JobEnd& end, const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {
    if (end.status == RunStatus::finished) end = {RunStatus::failed, error.what(), EndCause::files};
  }
}

}  // namespace bilevel
