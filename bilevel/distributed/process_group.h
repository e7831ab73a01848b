#pragma once
// Several processes that compute one thing together: sums over all of them, and what becomes of them when one
// fails. LibTorch's c10d does the work, with Gloo on CPUs and NCCL on GPUs. Only transport.cpp uses c10d,
// because it differs between LibTorch 1.13 and 2.x; sums on CPUs call Gloo itself (short_sums.h).
//
// Every rank calls the same operations in the same order. An operation that does not come to its end because
// another rank has failed, is gone or hangs throws RankFailure, the same on all ranks that are left.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/distributed/rank_place.h"

namespace bilevel {

struct GroupOptions {
  std::string backend = {};  // gloo or nccl; empty = gloo, and nccl on GPUs if each rank has its own GPU
  double timeout = 300;      // seconds that one rank waits for the others
  void validate() const;
};

// What this rank has handed to the others so far.
struct Communication {
  int64_t calls = 0;
  int64_t bytes = 0;   // of the tensors that went into sums and broadcasts
  double seconds = 0;  // spent in them, waiting for slower ranks included
  int64_t direct = 0;  // of the calls: sums by the calling thread itself (short_sums.h)
};

// Which rank failed first, and why.
struct FailureFacts {
  int rank = 0;
  std::string host = {};
  int process = 0;    // its number
  int exit_code = 1;  // of the program
  std::string cause = {};
};

class RankFailure : public std::runtime_error {
 public:
  RankFailure(const FailureFacts& facts, int size, bool first);
  const FailureFacts& facts() const { return facts_; }
  bool is_first() const { return first_; }  // to find out: this rank is to say it, the others keep silent

 private:
  FailureFacts facts_;
  bool first_;
};

class ProcessGroup {
 public:
  // Waits for all ranks. Throws std::invalid_argument where the backend is not in this program, RankFailure
  // where a rank does not come.
  static std::shared_ptr<ProcessGroup> join(const RankPlace& place, const GroupOptions& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int local_size() const { return place_.local_size; }
  const RankPlace& place() const { return place_; }
  const std::string& backend() const { return options_.backend; }  // "gloo+nccl" where the device decides

  // In place, over all ranks, to the same bits on each; several tensors of one type are joined in one call.
  void sum_(Tensor& tensor);
  void sum_(const std::vector<Tensor*>& tensors);
  void broadcast_(Tensor& tensor, int from = 0);
  void barrier();
  bool any(bool mine);                                       // whether one of them says yes
  std::vector<std::string> gather(const std::string& mine);  // from every rank, to every rank
  // The same where ranks come as their work is done, after hours perhaps: waits as long as they live.
  std::vector<std::string> gather_at_leisure(const std::string& mine);
  std::string broadcast(const std::string& text, int from = 0);

  const Communication& communication() const { return communication_; }

  // This rank fails: the others find the cause here. True: nobody failed before, so that this rank is to say
  // it.
  bool fail(const std::string& cause, int exit_code) noexcept;
  // "rank 1 of 3 (process 4242 on node7)"
  std::string name_of(int rank) const;

 private:
  struct Parts;
  ProcessGroup(const RankPlace& place, const GroupOptions& options);
  void meet();
  void agree_on_backend();
  template <typename Call>
  void collective(int64_t bytes, const Call& call);
  void transport_sum(Tensor& contiguous);
  [[noreturn]] void explain(const std::string& symptom);
  [[noreturn]] void claim(FailureFacts facts);
  void throw_recorded_failure();
  void look_at_processes();
  void wait_for_others(std::string (*key)(int rank));
  FailureFacts facts_of(int rank, const std::string& cause) const;
  std::vector<std::string> gather(const std::string& mine, bool at_leisure);

  RankPlace place_;
  GroupOptions options_;
  Communication communication_;
  int64_t gathered_ = 0;
  bool failed_ = false;  // a failure is known
  std::unique_ptr<Parts> parts_;
};

// Whether this program was built with it: libgloo-dev on Debian, NCCL with CUDA.
bool has_backend(const std::string& backend);
// Whether sums of numbers on CPUs are by the thread that wants them: with Gloo's own library.
bool has_short_sums();

}  // namespace bilevel
