#include "bilevel/meta/task_ranks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "bilevel/distributed/process_group.h"
#include "bilevel/distributed/rank_slice.h"

namespace bilevel::meta {

Tensor put_together(const Tensor& mine, const at::Device& device, ProcessGroup& group) {
  Tensor all = mine.to(device).contiguous();
  group.sum_(all);
  return all.to(mine.device());
}

Hypergradient dealt_hypergradient(const Learner& learner, const TaskSource& source, const Tensor& x,
                                  int64_t first, int64_t count, int64_t iteration, ProcessGroup& group) {
  const RankSlice own = slice_of({}, count, group.rank(), group.size());
  Hypergradient result;
  result.value = at::zeros_like(x);
  result.outer_loss = at::zeros({}, x.options());
  if (!own.empty()) {
    result = learner.hypergradient(x, source.tasks(Part::train, first + own.begin, own.count), iteration);
    result.value = (result.value.detach() * own.weight).contiguous();
    result.outer_loss = result.outer_loss.detach() * own.weight;
  }
  group.sum_({&result.value, &result.outer_loss});

  const OracleCounts& c = result.counts;
  const std::vector<int64_t> mine = {c.inner_gradient, c.outer_gradient, c.hessian,
                                     c.cross,          c.samples,        static_cast<int64_t>(result.status),
                                     result.bytes_kept};
  Tensor facts = at::zeros({group.size(), static_cast<int64_t>(mine.size())}, at::kLong);
  facts[group.rank()].copy_(at::tensor(mine, at::kLong));
  facts = put_together(facts, x.device(), group);
  const auto most = [&](int64_t column) { return facts.select(1, column).max().item<int64_t>(); };
  result.counts.inner_gradient = most(0);
  result.counts.outer_gradient = most(1);
  result.counts.hessian = most(2);
  result.counts.cross = most(3);
  result.counts.samples = facts.select(1, 4).sum().item<int64_t>();
  result.status = static_cast<Status>(most(5));
  result.bytes_kept = most(6);
  return result;
}

}  // namespace bilevel::meta
