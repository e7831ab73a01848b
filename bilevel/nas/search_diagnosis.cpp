#include "bilevel/nas/search_diagnosis.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/batch.h"
#include "bilevel/core/require.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel::nas {
namespace {

constexpr int64_t longest_series = 16;
constexpr int64_t lanczos_products = 20;  // as many as an epoch takes for its series rate

double length(const Tensor& t) { return t.norm().item<double>(); }

Spectrum ends(Linearization& at_point, const std::string& curvature, const Tensor& w, uint64_t seed) {
  SpectrumOptions lanczos;
  lanczos.dense_below = 0;
  lanczos.relative_tolerance = 0.05;
  lanczos.max_products = lanczos_products;
  lanczos.seed = seed;
  const MatrixProduct product = [&](const Tensor& v) {
    return curvature == "gauss-newton" ? at_point.gauss_newton(v) : at_point.hessian(v);
  };
  return extreme_eigenvalues(product, w.numel(), w.options(), lanczos);
}

}  // namespace

SearchDiagnosis diagnose_search(const Problem& supernet, const SearchOptions& options, double accuracy,
                                const Tensor& at_w, const Tensor& at_x) {
  require_between_0_and_1("accuracy", accuracy);
  const auto begin = std::chrono::steady_clock::now();
  const WithWeightDecay problem(supernet, options.weight_decay);
  Oracle oracle(problem);
  const Tensor w = at_w.defined() ? at_w : problem.initial_inner(options.seed);
  const Tensor x = at_x.defined() ? at_x : problem.initial_outer(options.seed);
  const BatchOptions size{.size = options.batch};
  const Batch train = BatchStream(options.seed, "diagnosis train", problem.inner_samples(), size).at(0);
  const Batch valid = BatchStream(options.seed, "diagnosis valid", problem.outer_samples(), size).at(0);

  SearchDiagnosis d;
  d.longest = longest_series;
  const auto at_point = oracle.linearize(w, x, train);
  d.hessian = ends(*at_point, "hessian", w, options.seed);
  d.curvature = d.hessian.smallest > 0 ? "hessian" : "gauss-newton";
  d.inverted = d.curvature == "hessian" ? d.hessian : ends(*at_point, d.curvature, w, options.seed);
  d.linear_rate = 1 / std::max(std::abs(d.inverted.largest), std::abs(d.inverted.smallest));
  if (!std::isfinite(d.linear_rate)) {
    throw OptionError(
        fmt::format("{}: the supernet's curvature at its first weights is {} to {}; there is no "
                    "rate for that: name a method",
                    named("method", "auto"), d.inverted.smallest, d.inverted.largest));
  }

  Trajectory here;
  here.options = options.inner;
  here.optimizer = make_inner_optimizer(options.inner);
  here.final = here.optimizer->start(w);
  HypergradientRequest request{.x = x, .inner = here};
  request.outer = valid;
  request.cross = train;
  request.hessian = {train};
  Tensor direct;
  const auto series = [&](int64_t terms, double rate) {
    EstimatorSettings settings;
    settings.terms = terms;
    settings.linear_rate = rate;
    settings.curvature = options.hypergradient.curvature;
    settings.curvature.kind = d.curvature;
    const Hypergradient h = make_estimator("neumann", settings)->estimate(oracle, request);
    direct = h.direct;
    return h.value;
  };
  // The rule's own direction (algorithms/darts.h): the derivative of the step that the inner optimiser takes,
  // whose coefficient is rate (1 + momentum) under Nesterov and never the rate of a series.
  const auto virtual_step = [&] {
    EstimatorSettings settings;
    settings.curvature = options.hypergradient.curvature;
    const auto one_step = make_estimator("one-step", settings);
    InnerLoop run;
    run.options = options.inner;
    run.options.steps = 1;
    run.batches = [&train](int64_t) { return train; };
    run.keep = one_step->keeps(1, here.final.bytes());
    run.measure_gradient = false;
    Trajectory step = continue_inner(oracle, x, here.final, run);
    HypergradientRequest at_step{.x = x, .inner = step};
    at_step.outer = valid;
    return one_step->estimate(oracle, at_step).value;
  };
  const Tensor reference = series(longest_series, d.linear_rate);
  const double scale = std::max(length(reference), 1e-300);
  d.implicit_share = length(reference - direct) / std::max(length(direct), 1e-300);
  const auto error_of = [&](const Tensor& value) { return length(value - reference) / scale; };

  const std::string where =
      d.curvature == "hessian"
          ? fmt::format("the Hessian's eigenvalues are {:.3g} to {:.3g}", d.hessian.smallest,
                        d.hessian.largest)
          : fmt::format(
                "the Hessian has an eigenvalue of {:.3g} beside {:.3g}, so the series is on the "
                "Gauss-Newton matrix",
                d.hessian.smallest, d.hessian.largest);
  if (const double error = error_of(direct); error <= accuracy) {
    d.method = "darts-first-order";
    d.error = error;
    d.sentence = fmt::format(
        "darts-first-order: what comes through the weights is {:.2g} of the direct gradient on the first "
        "batch, below the accuracy of {:g} ({}).",
        d.implicit_share, accuracy, where);
  } else if (const double one_step = error_of(virtual_step()); one_step <= accuracy) {
    d.method = "darts";
    d.error = one_step;
    d.sentence = fmt::format(
        "darts: one virtual step is within {:.2g} of a series of {} products on the first batch ({}).",
        one_step, longest_series, where);
  } else {
    d.method = "idarts";
    d.terms = longest_series;
    for (int64_t k = 0; k < longest_series; k = std::max<int64_t>(2 * k, k + 1)) {
      d.error = error_of(series(k, d.linear_rate));
      if (d.error > accuracy) continue;
      d.terms = k;
      break;
    }
    if (d.terms == longest_series) d.error = std::numeric_limits<double>::quiet_NaN();  // of the yardstick
    d.sentence = fmt::format(
        "idarts with K = {} at series rate 1 / {:.3g}: {} a series of {} products on the first batch, where "
        "what comes through the weights is {:.2g} of the direct gradient; {}.",
        d.terms, 1 / d.linear_rate,
        d.terms == longest_series ? "nothing shorter comes near" : fmt::format("within {:.2g} of", d.error),
        longest_series, d.implicit_share, where);
  }
  d.counts = oracle.counts();
  d.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return d;
}

}  // namespace bilevel::nas
