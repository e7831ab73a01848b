#pragma once
// A process of the group as the others know it, and whether it still runs.

#include <string>

namespace bilevel {

struct PeerProcess {
  std::string host = {};  // the machine's name
  std::string system =
      {};           // which running system with which numbers of processes: the same = it can be looked at
  int process = 0;  // its number
  std::string text() const;
};
PeerProcess this_process();
std::string machine_id();  // the same for all processes of a machine, in containers too, and for no others
PeerProcess read_process(const std::string& text);

enum class ProcessState { runs, stopped, gone, unknown };
ProcessState state_of(const PeerProcess& peer);  // unknown: it is on another machine

}  // namespace bilevel
