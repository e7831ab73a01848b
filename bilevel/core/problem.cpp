#include "bilevel/core/problem.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/core/autograd.h"

namespace bilevel {

Tensor Linearization::gauss_newton(const Tensor& /*v*/) {
  throw std::invalid_argument(
      "curvature gauss-newton needs a problem that exposes its outputs and the loss on them apart: this "
      "one's linearize() has no gauss_newton(); use hessian or damped curvature");
}

std::unique_ptr<Linearization> Problem::linearize(const Tensor& w, const Tensor& x,
                                                  const Batch& batch) const {
  return autograd::linearize(*this, w, x, batch);
}

Tensor Problem::inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return autograd::inner_gradient(*this, w, x, batch);
}

Tensor Problem::inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return autograd::inner_gradient_in_outer(*this, w, x, batch);
}

OuterGradients Problem::outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return autograd::outer_gradients(*this, w, x, batch);
}

OuterGradients Problem::outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const {
  OuterGradients all = outer_gradients(w, x, batch);
  all.w = Tensor();
  return all;
}

std::optional<InnerParts> Problem::inner_parts(const Tensor& /*w*/, const Tensor& /*x*/,
                                               const Batch& /*batch*/) const {
  return std::nullopt;
}

Tensor Problem::inner_start(const Tensor& /*x*/) const { return {}; }
Tensor Problem::inner_rate(const Tensor& /*x*/) const { return {}; }
std::optional<LossConstants> Problem::loss_constants(const Tensor& /*x*/) const { return std::nullopt; }

void Problem::project_outer_(Tensor& /*x*/) const {}
std::map<std::string, double> Problem::metrics(const Tensor& /*w*/, const Tensor& /*x*/) const { return {}; }

FunctionProblem::FunctionProblem(Loss inner, Loss outer, Tensor initial_inner, Tensor initial_outer)
    : inner_(std::move(inner)),
      outer_(std::move(outer)),
      initial_inner_(std::move(initial_inner)),
      initial_outer_(std::move(initial_outer)) {
  if (!inner_ || !outer_)
    throw std::invalid_argument("FunctionProblem needs both an inner and an outer loss");
  for (const auto& [name, start] : {std::pair<const char*, const Tensor&>{"initial_inner", initial_inner_},
                                    std::pair<const char*, const Tensor&>{"initial_outer", initial_outer_}}) {
    if (!start.defined() || start.dim() != 1) {
      throw std::invalid_argument(fmt::format(
          "FunctionProblem: {} must be a flat vector (one dimension), but is {}", name,
          start.defined() ? fmt::format("{}-dimensional", start.dim()) : std::string("undefined")));
    }
  }
}

Tensor FunctionProblem::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return inner_(w, x, batch);
}
Tensor FunctionProblem::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return outer_(w, x, batch);
}
Tensor FunctionProblem::initial_inner(uint64_t /*seed*/) const { return initial_inner_.clone(); }
Tensor FunctionProblem::initial_outer(uint64_t /*seed*/) const { return initial_outer_.clone(); }

}  // namespace bilevel
