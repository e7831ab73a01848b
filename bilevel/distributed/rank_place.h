#pragma once
// Which of several processes this one is, as launchers say it in the environment: torchrun (and `bilevel
// launch`), Open MPI's mpirun, SLURM's srun.

#include <functional>
#include <string>

namespace bilevel {

struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the processes of this machine
  std::string launcher = {};           // whose variables these are; empty = this process is alone
  bool one_machine = true;             // all ranks are on this machine
  // Where the ranks meet. On one machine in a private folder, so that no port is opened for it.
  std::string folder = {};
  std::string address = {};    // else where rank 0 listens
  int port = 0;                //
  bool agent_listens = false;  // torchrun does, in place of rank 0
  bool alone() const { return size == 1; }
};

// `variable(name)` gives a variable's value, or null. Throws std::invalid_argument that names the variables
// that are missing or that cannot be.
using Environment = std::function<const char*(const char* name)>;
RankPlace rank_from(const Environment& variable);
RankPlace rank_from_environment();

// Of SLURM's list of machines: "gpu[03-05,9],login" -> "gpu03".
std::string first_host(const std::string& list);

// The variable by which `bilevel launch` names the folder where its ranks meet.
inline constexpr const char* rendezvous_variable = "BILEVEL_RENDEZVOUS";

}  // namespace bilevel
