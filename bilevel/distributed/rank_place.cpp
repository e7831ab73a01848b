#include "bilevel/distributed/rank_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace bilevel {
namespace {

constexpr int most_ranks = 1 << 16;

class Variables {
 public:
  explicit Variables(const Environment& variable) : variable_(variable) {}

  std::string text(const char* name) const {
    const char* value = variable_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  int number(const char* name, int least, int most) const {
    const std::string word = text(name);
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < least || value > most) {
      throw std::invalid_argument(fmt::format(
          "the environment has {}={}: must be a whole number from {} to {}", name, word, least, most));
    }
    return value;
  }
  int number(const char* name, int least, int most, int otherwise) const {
    return has(name) ? number(name, least, most) : otherwise;
  }

 private:
  const Environment& variable_;
};

std::string private_folder(const std::string& name) {
  return (std::filesystem::temp_directory_path() / fmt::format("bilevel-{}-{}", ::getuid(), name)).string();
}

void take_address(const Variables& v, RankPlace& place) {
  place.address = v.text("MASTER_ADDR");
  place.port = v.number("MASTER_PORT", 1, 65535, 0);
}

void require_address(const RankPlace& place, const char* how) {
  if (!place.address.empty() && place.port != 0) return;
  throw std::invalid_argument(fmt::format(
      "{} started {} ranks on several machines, and the environment has no {}: give the address of rank 0's "
      "machine and a port that is free there{}",
      place.launcher, place.size, place.address.empty() ? "MASTER_ADDR" : "MASTER_PORT", how));
}

RankPlace from_torchrun(const Variables& v) {
  RankPlace place;
  place.launcher = v.has(rendezvous_variable) ? "bilevel launch" : "torchrun";
  place.size = v.number("WORLD_SIZE", 1, most_ranks);
  place.rank = v.number("RANK", 0, place.size - 1);
  place.local_size = v.number("LOCAL_WORLD_SIZE", 1, place.size, 1);
  place.local_rank = v.number("LOCAL_RANK", 0, place.local_size - 1, 0);
  place.one_machine = place.local_size == place.size;
  if (place.alone()) return place;
  if (v.has(rendezvous_variable)) {
    place.folder = v.text(rendezvous_variable);
    return place;
  }
  take_address(v, place);
  place.agent_listens = v.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  require_address(place, "");
  return place;
}

RankPlace from_open_mpi(const Variables& v) {
  RankPlace place;
  place.launcher = "mpirun";
  place.size = v.number("OMPI_COMM_WORLD_SIZE", 1, most_ranks);
  place.rank = v.number("OMPI_COMM_WORLD_RANK", 0, place.size - 1);
  place.local_size = v.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, place.size, 1);
  place.local_rank = v.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, place.local_size - 1, 0);
  place.one_machine = place.local_size == place.size;
  if (place.alone()) return place;
  if (!place.one_machine) {
    take_address(v, place);
    require_address(place, ", as in mpirun -x MASTER_ADDR=node1 -x MASTER_PORT=29400");
    return place;
  }
  // A job's number may come again; with the process number of its mpirun it does not as long as that lives.
  const std::string session = v.text("PMIX_SERVER_TMPDIR");
  const std::string job = v.has("PMIX_NAMESPACE") ? v.text("PMIX_NAMESPACE") : fmt::format("{}", ::getppid());
  if (!session.empty() && std::filesystem::is_directory(session)) {
    place.folder = session + "/bilevel-" + job;  // mpirun removes it with its own files
  } else {
    place.folder = private_folder("mpirun-" + job);
  }
  return place;
}

RankPlace from_slurm(const Variables& v) {
  RankPlace place;
  place.launcher = "srun";
  place.size = v.number("SLURM_STEP_NUM_TASKS", 1, most_ranks, 0);
  if (place.size == 0) place.size = v.number("SLURM_NTASKS", 1, most_ranks);
  place.rank = v.number("SLURM_PROCID", 0, place.size - 1);
  const int nodes =
      v.number("SLURM_STEP_NUM_NODES", 1, most_ranks, v.number("SLURM_NNODES", 1, most_ranks, 1));
  place.one_machine = nodes == 1;
  place.local_rank = v.number("SLURM_LOCALID", 0, place.size - 1, 0);
  // "2(x3),1" of ours: with one machine it is all of them, else at least those before this one.
  place.local_size = place.one_machine ? place.size : place.local_rank + 1;
  if (!place.one_machine) {
    const std::string per_node = v.text("SLURM_STEP_TASKS_PER_NODE");
    int first = 0;
    std::from_chars(per_node.data(), per_node.data() + per_node.size(), first);
    if (first > place.local_size && first <= place.size) place.local_size = first;
  }
  if (place.alone()) return place;
  const std::string job = v.text("SLURM_JOB_ID"), step = v.text("SLURM_STEP_ID");
  if (place.one_machine) {
    place.folder = private_folder(fmt::format(
        "srun-{}-{}-{}", job, step, v.has("SLURM_RESTART_COUNT") ? v.text("SLURM_RESTART_COUNT") : "0"));
    return place;
  }
  take_address(v, place);
  if (place.address.empty()) {
    place.address =
        first_host(v.has("SLURM_STEP_NODELIST") ? v.text("SLURM_STEP_NODELIST") : v.text("SLURM_NODELIST"));
  }
  if (place.port == 0) {
    // Jobs that share a machine take other ports: from 20000, below those that the system hands out.
    const unsigned long number =
        std::strtoul(job.c_str(), nullptr, 10) * 8 + std::strtoul(step.c_str(), nullptr, 10);
    place.port = static_cast<int>(20000 + number % 12000);
  }
  require_address(place, "");
  return place;
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket + 1);
  return list.substr(0, bracket) +
         list.substr(bracket + 1, end == std::string::npos ? end : end - bracket - 1);
}

RankPlace rank_from(const Environment& variable) {
  const Variables v(variable);
  if (v.has("RANK") && v.has("WORLD_SIZE")) return from_torchrun(v);
  if (v.has("OMPI_COMM_WORLD_SIZE") && v.has("OMPI_COMM_WORLD_RANK")) return from_open_mpi(v);
  // A shell in an allocation has SLURM's variables too, but is no step of it.
  if (v.has("SLURM_STEP_ID") && v.has("SLURM_PROCID") &&
      (v.has("SLURM_STEP_NUM_TASKS") || v.has("SLURM_NTASKS"))) {
    return from_slurm(v);
  }
  return {};
}

RankPlace rank_from_environment() {
  return rank_from([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace bilevel
