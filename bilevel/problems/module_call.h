#pragma once
// A torch::nn module as a pure function of a flat vector: while a function runs, every operation that is
// given one of the module's parameters gets the part of w that stands for it, in w's graph. Nothing is
// written to the module, so that many graphs at many w can be alive at once, which copying w into the
// parameters could not give: a graph keeps the parameters themselves and would read what was copied last.
//
// LibTorch's modules hold their parameters as members, which no one can exchange from outside. So they are
// exchanged where all operations pass, in the dispatcher: a fallback on the key DeferredInit, which LibTorch
// reserves for extensions that intercept modules' operations (its one known user, torchdistx, cannot be used
// in the same process).

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/core/tensor.h"

namespace torch::nn {
class Module;
}

namespace bilevel {

class ModuleCall {
 public:
  // Over the parameters that require a gradient; frozen ones are constants. Throws std::invalid_argument
  // where there is none, or where they differ in type or device.
  explicit ModuleCall(std::shared_ptr<torch::nn::Module> module);
  ~ModuleCall();
  ModuleCall(ModuleCall&&) noexcept;

  const Layout& layout() const { return layout_; }  // of w, by the module's own names: 0.weight, 0.bias, ...
  Tensor parameters() const;                        // as the module has them now, flat
  void write(const Tensor& w) const;                // copies w into the module's parameters

  // What `function` returns with w in place of the parameters. Buffers (running statistics of batch norm) are
  // read as they stand and written to in copies that last for this call. Random numbers (dropout) are drawn
  // from `seed`, and the process's own generator goes on as if none had been drawn. Only operations of the
  // calling thread are seen.
  Tensor run(const Tensor& w, uint64_t seed, const std::function<Tensor()>& function) const;

 private:
  struct Places;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<Places> places_;
  Layout layout_;
};

}  // namespace bilevel
