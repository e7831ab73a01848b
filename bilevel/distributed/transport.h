#pragma once
// What a process group needs of LibTorch's c10d, without naming it: a place where ranks meet and leave words,
// and sums of tensors. transport.cpp is the one file that differs between LibTorch 1.13 and 2.x.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/distributed/rank_place.h"

namespace bilevel {

// Words by keys, for all ranks to read.
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual bool has(const std::string& key) = 0;
  virtual std::string get(const std::string& key) = 0;
  // Unless there is one. Returns what is there then.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  virtual bool ends_with_this_process() const = 0;
};
std::unique_ptr<MeetingPlace> open_meeting_place(const RankPlace& place, double timeout);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual bool sum_(Tensor& contiguous) = 0;  // whether this thread did it by itself (short_sums.h)
  virtual void broadcast_(Tensor& contiguous, int from) = 0;
  virtual Tensor scalar(double value) const = 0;  // of a kind that it can sum
  virtual void leave() = 0;                       // called by every rank after its last sum
};
// Whether this program was built for NCCL and LibTorch has the same version of it.
bool can_use_nccl();
// A word of every rank, to every rank.
using Gather = std::function<std::vector<std::string>(const std::string& mine)>;
// `gpus`: of every rank, machine and place there; empty where it cannot use NCCL.
bool each_has_its_own_gpu(const std::vector<std::string>& gpus);
// `store` is of open_meeting_place, and must outlive it. `backend`: gloo, nccl, or "gloo+nccl": by Gloo, but
// tensors on GPUs by NCCL, which needs a GPU for each rank, if the GPUs of the first such tensor are
// different ones.
std::unique_ptr<Transport> make_transport(const std::string& backend, const RankPlace& place,
                                          MeetingPlace& store, double timeout, Gather gather);

}  // namespace bilevel
