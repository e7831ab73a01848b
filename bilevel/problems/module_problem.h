#pragma once
// A problem on any torch::nn module: w is its parameters, x whatever the losses make of it (a weight decay
// per layer, a weight per example, ...).
//
//     torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 3));
//     ModuleProblem problem(
//         net, [&](auto& net, const Tensor& x, const Batch& batch) { return ... net->forward(inputs) ...; },
//         [&](auto& net, const Tensor& x, const Batch& batch) { return ...; }, at::full({4}, -3.0));
//
// The losses are those of core/problem.h: pure functions of the module's parameters, x and the batch. The
// module's own tensors are never written to (module_call.h says how, and what becomes of buffers and of
// dropout); `write` puts a solution into them.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "bilevel/core/problem.h"
#include "bilevel/problems/module_call.h"

namespace bilevel {

// How many examples each level has, for drawing batches and for counting.
struct ModuleSamples {
  int64_t inner = 1, outer = 1;
};

class ModuleProblem : public Problem {
 public:
  // `module`: a module holder (torch::nn::Sequential, or your own by TORCH_MODULE) or a std::shared_ptr to a
  // module. The losses are called with it, x and the batch. Needs <torch/nn/module.h> at the caller's.
  template <typename Holder, typename InnerLoss, typename OuterLoss>
  ModuleProblem(Holder module, InnerLoss inner, OuterLoss outer, Tensor initial_outer,
                ModuleSamples samples = {})
      : ModuleProblem(
            pointer_to(module),
            {[module, inner](const Tensor& x, const Batch& batch) mutable { return inner(module, x, batch); },
             [module, outer](const Tensor& x, const Batch& batch) mutable {
               return outer(module, x, batch);
             }},
            std::move(initial_outer), samples) {}

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  // What the module held when the problem was made, whatever the seed.
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return samples_.inner; }
  int64_t outer_samples() const override { return samples_.outer; }
  const Layout* inner_layout() const override { return &call_.layout(); }

  void write(const Tensor& w) const { call_.write(w); }  // into the module's parameters

 private:
  using Loss = std::function<Tensor(const Tensor& x, const Batch& batch)>;
  struct Losses {
    Loss inner, outer;
  };
  ModuleProblem(std::shared_ptr<torch::nn::Module> module, Losses losses, Tensor initial_outer,
                ModuleSamples samples);

  template <typename Holder>
  static std::shared_ptr<torch::nn::Module> pointer_to(const Holder& module) {
    if constexpr (requires { module.ptr(); }) {
      return module.ptr();
    } else {
      return module;
    }
  }

  ModuleCall call_;
  Losses losses_;
  Tensor initial_inner_, initial_outer_;
  ModuleSamples samples_;
};

}  // namespace bilevel
