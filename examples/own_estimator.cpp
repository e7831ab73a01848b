// A user-defined estimator, measured beside the built-in ones: df/dx - C v with the v that one step of
// steepest descent on the linear system gives, (p'p / p'Hp) p with p = df/dw.

#include <bilevel/bilevel.h>

#include <cstdio>

class OneDescent : public bilevel::HypergradientEstimator {
 public:
  std::string_view name() const override { return "one-descent"; }
  bool implicit() const override { return true; }  // an estimate of the implicit hypergradient

 private:
  bilevel::Hypergradient compute(bilevel::Oracle& oracle,
                                 const bilevel::HypergradientRequest& request) const override {
    using namespace bilevel;
    return implicit_hypergradient(oracle, request, {}, [](CurvatureProducts& hessian, const Tensor& p) {
      LinearResult result;
      result.solution = p * (p.dot(p) / p.dot(hessian(p, 0)));  // one Hessian product
      result.status = Status::ok;
      return result;
    });
  }
};

int main() {
  const bilevel::NamedProblem ridge = bilevel::make_problem("ridge");
  bilevel::CheckOptions options;
  options.inner = {.steps = ridge.inner_steps, .rate = ridge.inner_rate};
  options.own = {std::make_shared<OneDescent>()};
  for (const bilevel::MethodRow& row : bilevel::check_problem(ridge, options).methods) {
    std::printf("%-17s error %8.1e, %4ld Hessian products: %s\n", row.name.c_str(), row.error_implicit,
                static_cast<long>(row.hypergradient.counts.hessian), row.why.c_str());
  }
}
