#pragma once
// What a process group needs of LibTorch's c10d, without naming it: a place where ranks meet and leave words,
// and sums of tensors. transport.cpp is the one file that differs between LibTorch 1.13 and 2.x.

#include <memory>
#include <string>

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
  virtual void sum_(Tensor& contiguous) = 0;
  virtual void broadcast_(Tensor& contiguous, int from) = 0;
  virtual Tensor scalar(double value) const = 0;  // of a kind that it can sum
  virtual void leave() = 0;                       // called by every rank after its last sum
};
// Whether this rank can send what is on GPUs by NCCL, which needs one for each rank.
bool has_own_gpu(const RankPlace& place);
// `store` is of open_meeting_place, and must outlive it. `backend`: gloo, nccl, or "gloo+nccl": tensors on
// GPUs by NCCL, others by Gloo.
std::unique_ptr<Transport> make_transport(const std::string& backend, const RankPlace& place,
                                          MeetingPlace& store, double timeout);

}  // namespace bilevel
