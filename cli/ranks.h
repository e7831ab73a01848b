#pragma once
// A command as one of several processes that do a job together (docs/distributed.md): rank 0 alone keeps the
// folder and prints, and whatever ends one of them ends all, with one message.

#include <functional>
#include <memory>
#include <string>

#include "bilevel/distributed/process_group.h"
#include "cli/process_options.h"

namespace bilevel::cli {

// Throws std::invalid_argument for a command that several processes were started for, each of which would do
// the whole of it.
void require_command_for_ranks(const std::string& command);

// Calls `work` with the group that the environment names, or with none where this process is alone, and
// returns its exit code, or that of the rank that failed first. `given` tells whether the group's options
// were: one process that a launcher has started with them is a group of one.
using RankedWork = std::function<int(const std::shared_ptr<ProcessGroup>& group)>;
int run_ranked(const GroupOptions& options, const Given& given, const RankedWork& work);

}  // namespace bilevel::cli
