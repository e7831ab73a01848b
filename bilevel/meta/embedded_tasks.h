#pragma once
// The examples of many tasks as a shared embedding sees them. The inner problems take the features themselves
// as variables: z = [training features, validation features, the part of x that is not the embedding]. This
// is the step from x to z and its derivative, which is one backward pass through the embedding for all tasks
// and all cross products together.

#include "bilevel/core/tensor.h"
#include "bilevel/meta/network.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

class EmbeddedTasks {
 public:
  // x begins with the embedding's weights. Without a derivative in mind the graph is not kept.
  EmbeddedTasks(const Network& embedding, const Tensor& x, const TaskBatch& tasks, bool with_derivative);

  const Tensor& z() const { return z_; }
  // (dz/dx)' u, once.
  Tensor pullback(const Tensor& u) const;

 private:
  Tensor weights_, train_, valid_, z_;
  int64_t rest_;  // numbers of x that are not the embedding
};

}  // namespace bilevel::meta
