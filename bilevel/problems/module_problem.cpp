#include "bilevel/problems/module_problem.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace bilevel {

ModuleProblem::ModuleProblem(std::shared_ptr<torch::nn::Module> module, Losses losses, Tensor initial_outer,
                             ModuleSamples samples)
    : call_(std::move(module)),
      losses_(std::move(losses)),
      initial_inner_(call_.parameters()),
      initial_outer_(std::move(initial_outer)),
      samples_(samples) {
  if (!initial_outer_.defined() || initial_outer_.dim() != 1) {
    throw std::invalid_argument(
        "ModuleProblem: initial_outer must be a vector: one number for each entry of x");
  }
  if (samples_.inner < 1 || samples_.outer < 1) {
    throw std::invalid_argument(fmt::format("ModuleProblem: samples = {} and {}: must be at least 1",
                                            samples_.inner, samples_.outer));
  }
}

Tensor ModuleProblem::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return call_.run(w, batch.seed, [&] { return losses_.inner(x, batch); });
}

Tensor ModuleProblem::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return call_.run(w, batch.seed, [&] { return losses_.outer(x, batch); });
}

Tensor ModuleProblem::initial_inner(uint64_t /*seed*/) const { return initial_inner_.clone(); }
Tensor ModuleProblem::initial_outer(uint64_t /*seed*/) const { return initial_outer_.clone(); }

}  // namespace bilevel
