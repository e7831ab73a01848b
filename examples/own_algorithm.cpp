// A user-defined algorithm, compared with built-in ones at the same budget and with the same search for
// rates: one inner step, then one step of x along the T1-T2 hypergradient df/dx - C df/dw.

#include <bilevel/bilevel.h>

#include <cstdio>

class Alternating : public bilevel::Algorithm {
 public:
  Alternating(double inner_rate, const bilevel::OuterOptions& outer) : Algorithm(outer), rate_(inner_rate) {}
  std::string_view name() const override { return "alternating"; }

 private:
  bilevel::IterationSummary advance(bilevel::Oracle& oracle, bilevel::AlgorithmState& state,
                                    bilevel::Streams& streams) const override {
    const auto g = oracle.linearize(state.inner.w, state.x, streams.inner("step"));
    const auto f = oracle.outer_gradients(state.inner.w, state.x, streams.outer("loss"));
    const bilevel::Tensor direction = f.x - g->cross(f.w);
    state.inner.w = bilevel::descend(state.inner.w, g->gradient(), rate_);
    state.x = outer_step(oracle, state.x, direction, state.outer);
    return {.direction = direction, .outer_loss = f.loss, .status = bilevel::Status::ok};
  }
  double rate_;
};

int main() {
  const bilevel::NamedProblem problem = bilevel::make_problem("hyper-cleaning");
  bilevel::CompareOptions options{.algorithms = {"soba", "aid-cg"}};
  options.own = {{.make = [](const bilevel::AlgorithmSettings& s) {
    return std::make_unique<Alternating>(s.inner.rate, s.outer);
  }}};
  options.settings.inner = {.steps = 10, .rate = problem.inner_rate};
  options.solve.oracle_calls = 2000;
  for (const auto& a : bilevel::compare_algorithms(*problem.problem, options).algorithms) {
    std::printf("%-12s outer rate %g: f(x, w*(x)) = %.4f\n", a.name.c_str(), a.outer_rate,
                a.runs.front().records.back().value);
  }
}
