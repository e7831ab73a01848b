// Three hypergradients of architecture search from one state and the same batch: DARTS, K-RMD with one kept
// step, and iDARTS with T = 1, K = 0. iDARTS calls them the same. The first two are; the third takes its
// cross product after the step instead of before it.

#include <bilevel/bilevel.h>
#include <bilevel/nas/synthetic_supernet.h>

#include <cstdio>

int main() {
  using at::Tensor;
  using namespace bilevel;
  const NamedProblem named = nas::make_synthetic_supernet({.images = 64});
  const Problem& problem = *named.problem;
  Oracle oracle(problem);
  const auto norm = [](const Tensor& t) { return t.norm().item<double>(); };

  for (const char* optimizer : {"gd", "nesterov"}) {
    const InnerOptions inner{.optimizer = optimizer, .steps = 1, .rate = 0.025};
    // Some steps of a search, so that w, alpha and the momenta are somewhere.
    const Darts search({.inner = inner, .outer = {.optimizer = "adam", .rate = 3e-4}});
    AlgorithmState state = search.init(oracle, problem.initial_outer(0), problem.initial_inner(0));
    Streams streams(0, problem.inner_samples(), problem.outer_samples(),
                    {.inner_batch = 32, .outer_batch = 32});
    for (int k = 0; k < 10; ++k) search.step(oracle, state, streams);

    const Batch training = streams.inner("steps"), validation = streams.outer("loss");
    InnerLoop run{.options = inner, .keep = {0}, .batches = [&](int64_t) { return training; }};
    Trajectory step = continue_inner(oracle, state.x, state.inner, run);
    const HypergradientRequest request{
        .x = state.x, .inner = step, .outer = validation, .cross = training, .hessian = {training}};
    // How far the step moves w for a unit of gradient.
    const double scale = inner.optimizer == "nesterov" ? (1 + inner.momentum) * inner.rate : inner.rate;
    const Hypergradient darts = OneStep().estimate(oracle, request);
    const Hypergradient truncated = Truncated({.steps = 1}).estimate(oracle, request);
    const Hypergradient idarts =
        NeumannEstimator({.terms = 0, .rate = scale, .curvature = {}}).estimate(oracle, request);

    const Tensor p = oracle.outer_gradients(step.final.w, state.x, validation).w;
    const Tensor before = oracle.linearize(state.inner.w, state.x, training)->cross(p);
    const Tensor after = oracle.linearize(step.final.w, state.x, training)->cross(p);
    std::printf("%s, rate 0.025: |df/dx| = %.6f\n", optimizer, norm(darts.direct));
    std::printf("  %-24s %12s %14s\n", "", "|through w|", "from darts");
    for (const auto& [name, h] : {std::pair{"darts", &darts},
                                  {"truncated, 1 kept step", &truncated},
                                  {"idarts, T = 1, K = 0", &idarts}}) {
      std::printf("  %-24s %12.6f %14.2e\n", name, norm(h->value - h->direct), norm(h->value - darts.value));
    }
    const Tensor moved = scale * (before - after);
    std::printf("  %.4f |(C(w) - C(w')) p| = %.2e; idarts - darts is that vector to %.0e\n", scale,
                norm(moved), norm(idarts.value - darts.value - moved));
  }
}
