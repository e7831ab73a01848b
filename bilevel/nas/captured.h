#pragma once
// A function of tensors as a CUDA graph. A pass over a network launches hundreds or thousands of small
// kernels, and from the host each launch takes about as long as the kernel; a graph, captured once, launches
// all of them at once.

#include <functional>
#include <memory>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

bool can_capture();  // the library was built with CUDA, and a GPU is there

// A function of tensors whose shapes never change, captured when it is first called on a GPU: inputs are
// copied to where the graph reads them, outputs from where it writes them. On the CPU it is called as it is.
class Captured {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
  // `after`: its memory is shared, and what it left there is read, so that it is always called before this
  // one. `forget` drops what the function keeps from call to call: that of the calls before the capture would
  // hold memory beside the graph's.
  Captured(Function function, const at::TensorOptions& tensors, const Captured* after = nullptr,
           std::function<void()> forget = {});
  ~Captured();
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);

 private:
  struct Graph;

  Function function_;
  const Captured* after_;
  std::function<void()> forget_;  // empty = it keeps nothing
  std::unique_ptr<Graph> graph_;  // null on the CPU
};

}  // namespace bilevel::nas
