// Three hypergradients of architecture search from one state and the same batch: DARTS, K-RMD with one kept
// step, and iDARTS with T = 1, K = 0, whose cross product is taken after the step instead of before it.

#include <bilevel/bilevel.h>
#include <bilevel/nas/synthetic_supernet.h>

#include <cstdio>

int main() {
  const auto problem = bilevel::nas::make_synthetic_supernet({.images = 64}).problem;
  bilevel::Oracle oracle(*problem);
  for (const char* optimizer : {"gd", "nesterov"}) {
    const bilevel::InnerOptions inner{.optimizer = optimizer, .steps = 1, .rate = 0.025};
    // Ten steps of a search, so that w, alpha and the momenta are somewhere.
    const bilevel::Darts search({.inner = inner, .outer = {.optimizer = "adam", .rate = 3e-4}});
    auto state = search.init(oracle, problem->initial_outer(0), problem->initial_inner(0));
    bilevel::Streams streams(0, 64, 64, {.inner_batch = 32, .outer_batch = 32});
    for (int k = 0; k < 10; ++k) search.step(oracle, state, streams);

    const bilevel::Batch training = streams.inner("steps"), validation = streams.outer("loss");
    const auto step =
        continue_inner(oracle, state.x, state.inner, {inner, {0}, [&](int64_t) { return training; }});
    const bilevel::HypergradientRequest request{state.x, step, validation, training, {training}};
    // How far the step moves w for a unit of gradient.
    const double s = inner.optimizer == "nesterov" ? (1 + inner.momentum) * inner.rate : inner.rate;
    const auto darts = bilevel::OneStep().estimate(oracle, request);
    const auto truncated = bilevel::Truncated({.steps = 1}).estimate(oracle, request);
    const auto idarts = bilevel::NeumannEstimator({.terms = 0, .rate = s}).estimate(oracle, request);
    const at::Tensor p = oracle.outer_gradients(step.final.w, state.x, validation).w;
    const auto cross = [&](const at::Tensor& w) { return oracle.linearize(w, state.x, training)->cross(p); };
    const at::Tensor moved = s * (cross(state.inner.w) - cross(step.final.w));
    const auto far = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); };
    std::printf("%s: darts is %.6f from df/dx(w'), truncated %.2e and idarts %.2e from darts\n", optimizer,
                far(darts.value, darts.direct), far(truncated.value, darts.value),
                far(idarts.value, darts.value));
    std::printf("  %.4f (C(w) - C(w')) p is %.2e long, and idarts - darts is that vector to %.0e\n", s,
                moved.norm().item<double>(), far(idarts.value - darts.value, moved));
  }
}
