#pragma once
// How ranks divide the batches of a network: each takes its piece (distributed/rank_slice.h), and batch norm
// sees the whole batch or the piece alone.

#include <cstdint>
#include <memory>
#include <utility>

#include "bilevel/core/tensor.h"
#include "bilevel/distributed/differentiable_sum.h"
#include "bilevel/distributed/process_group.h"

namespace bilevel::nas {

// The many small sums of norms, counted apart from what else the ranks send each other.
class NormSums : public RankSum {
 public:
  explicit NormSums(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
  void sum_(Tensor& tensor) override {
    const Communication before = group_->communication();
    group_->sum_(tensor);
    const Communication& now = group_->communication();
    sent_.calls += now.calls - before.calls;
    sent_.bytes += now.bytes - before.bytes;
    sent_.seconds += now.seconds - before.seconds;
  }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  const Communication& sent() const { return sent_; }  // of the group's own numbers, the norms' part

 private:
  std::shared_ptr<ProcessGroup> group_;
  Communication sent_;
};

// What the images of a pass are of a batch.
struct BatchShare {
  int64_t all_images = 0;     // of the batch; 0 = these are all
  NormSums* norms = nullptr;  // null = norms see these images alone
  double of(int64_t images) const {
    return all_images == 0 ? 1 : static_cast<double>(images) / static_cast<double>(all_images);
  }
};

struct BatchRanks {
  std::shared_ptr<ProcessGroup> group = {};  // null = this process has the whole batch
  std::shared_ptr<NormSums> norms = {};      // null = norms see a process's own images alone
  bool several() const { return group != nullptr && group->size() > 1; }
};
inline BatchRanks divided_among(const std::shared_ptr<ProcessGroup>& group, bool global_norms = true) {
  return {group, group && global_norms ? std::make_shared<NormSums>(group) : nullptr};
}

// What the ranks sent each other but for the sums of norms.
inline Communication without_norms(const BatchRanks& ranks) {
  Communication all = ranks.group->communication();
  if (!ranks.norms) return all;
  all.calls -= ranks.norms->sent().calls;
  all.bytes -= ranks.norms->sent().bytes;
  all.seconds -= ranks.norms->sent().seconds;
  return all;
}

}  // namespace bilevel::nas
