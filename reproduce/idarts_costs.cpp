// iDARTS (Zhang et al., ICML 2021), table 4 of appendix E: what each hypergradient costs, measured on a
// supernet instead of in orders of magnitude.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bilevel/core/spectrum.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/nas/search_images.h"
#include "bilevel/nas/synthetic_images.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

constexpr int64_t T = 4, K = 2, S = 10, long_series = 50;
constexpr int64_t steps_before = 20;  // of the weights, so that nothing is measured at a random start
constexpr int64_t batch = 32;
constexpr double rate = 0.01;
// Indefinite as a supernet's Hessian is, it has no inverse that a series or conjugate gradients could
// approach: the Gauss-Newton matrix with a damping has one, and serves every implicit row.
constexpr double damping = 0.5;

nas::SupernetProblem make_problem(const ReproduceOptions& options, const at::TensorOptions& tensors) {
  const int64_t size = options.full() ? 32 : 8;
  nas::SyntheticImages made{.samples = batch, .height = size, .width = size};
  nas::SearchImages images;
  images.channels = made.channels;
  images.height = images.width = size;
  images.classes = made.classes;
  made.seed = 2 * options.seed;
  images.train = nas::image_source(nas::draw_images(made, tensors));
  made.seed = 2 * options.seed + 1;
  images.valid = nas::image_source(nas::draw_images(made, tensors));
  nas::SupernetOptions supernet;
  if (!options.full()) {
    supernet.channels = 4;
    supernet.cells = 1;
  }
  return nas::make_supernet_problem(nas::make_space("nasbench201"), supernet, images, tensors);
}

enum class Reference { implicit, unrolled };

struct Row {
  const char *method, *estimator;
  const char *steps, *memory;  // as the paper has them
  Reference reference;
  EstimatorSettings settings;
};

struct Measured {
  Row row;
  Hypergradient h;
};

double relative_distance(const Tensor& a, const Tensor& reference) {
  return ((a - reference).norm() / reference.norm()).item<double>();
}

// Measures estimators at one point: x, and w after T steps from a start that is the same for all.
class Bench {
 public:
  Bench(const ReproduceOptions& options, const at::TensorOptions& tensors)
      : problem_(make_problem(options, tensors)), x_(problem_.initial_outer(options.seed)) {
    Oracle oracle(problem_);
    InnerLoop before;
    before.options.steps = steps_before;
    before.options.rate = rate;
    w_ = run_inner(oracle, x_, problem_.initial_inner(options.seed), before).final.w;
  }

  Hypergradient measure(const std::string& estimator, const EstimatorSettings& settings,
                        int64_t steps = T) const {
    Oracle oracle(problem_);
    return hypergradient_at(oracle, x_, w_, {.steps = steps, .rate = rate},
                            *make_estimator(estimator, settings))
        .hypergradient;
  }

  // Of the damped Gauss-Newton matrix at the weights that the implicit rows see: 1 / it is a safe rate for
  // the series.
  double largest_curvature() const {
    Oracle oracle(problem_);
    InnerLoop steps;
    steps.options.steps = T;
    steps.options.rate = rate;
    const Tensor w = run_inner(oracle, x_, w_, steps).final.w;
    const auto at_point = oracle.linearize(w, x_, {});
    SpectrumOptions lanczos;
    lanczos.dense_below = 0;
    lanczos.relative_tolerance = 0.01;
    lanczos.max_products = 30;
    return extreme_eigenvalues(
               [&](const Tensor& v) { return at::add(at_point->gauss_newton(v), v, damping); }, w.numel(),
               w.options(), lanczos)
        .largest;
  }

  int64_t weights() const { return w_.numel(); }
  int64_t bytes_of_w() const { return static_cast<int64_t>(w_.nbytes()); }
  int64_t alpha() const { return x_.numel(); }
  const nas::SupernetOptions& net() const { return problem_.supernet().options(); }

 private:
  nas::SupernetProblem problem_;
  Tensor x_, w_;
};

EstimatorSettings settings_of(int64_t terms, double linear_rate = 0) {
  EstimatorSettings settings;
  settings.terms = terms;
  settings.truncate = terms;
  settings.linear_rate = linear_rate;
  settings.curvature.kind = "gauss-newton";
  settings.curvature.damping = damping;
  return settings;
}

bool costs(const Hypergradient& h, int64_t hessian, int64_t cross) {
  return h.counts.hessian == hessian && h.counts.cross == cross;
}

std::string products_text(const Hypergradient& h) {
  return fmt::format("{} + {}", h.counts.hessian, h.counts.cross);
}

// How the series approaches the reference with K, at a rate that is safe.
Json series_table(const Bench& bench, double safe_rate, const Tensor& reference,
                  std::vector<double>& distances) {
  Json rows = Json::array();
  for (const int64_t terms : std::initializer_list<int64_t>{0, 1, 2, 3, 10, long_series}) {
    const Hypergradient slow = bench.measure("neumann", settings_of(terms));
    const Hypergradient safe = bench.measure("neumann", settings_of(terms, safe_rate));
    distances.push_back(relative_distance(safe.value, reference));
    rows.push_back({{"K", terms},
                    {"products", products_text(safe)},
                    {"kept bytes", safe.bytes_kept},
                    {fmt::format("distance at rate {}", rate), relative_distance(slow.value, reference)},
                    {fmt::format("at 1 / L = {:.2g}", safe_rate), distances.back()}});
  }
  return table("The series by its length: distance from the implicit hypergradient", rows);
}

}  // namespace

Json idarts_table4(const ReproduceOptions& options) {
  const at::TensorOptions tensors = options.tensors.dtype(at::kDouble);
  const Bench bench(options, tensors);
  options.progress("largest curvature");
  const double safe_rate = 1 / bench.largest_curvature();
  const std::vector<Row> rows = {
      {"exact (CG to rounding)", "exact", "inf", "P + H", Reference::implicit, settings_of(0)},
      {"DARTS, one step", "one-step", "1", "P + H", Reference::unrolled, settings_of(0)},
      {"T1-T2", "t1t2", "1", "P + H", Reference::implicit, settings_of(0)},
      {"reverse, T = 4", "reverse", "T", "(P + H) T", Reference::unrolled, settings_of(0)},
      {"truncated, K = 2", "truncated", "K", "(P + H) K", Reference::unrolled, settings_of(K)},
      {"Neumann, K = 50, rate 1/L", "neumann", "inf", "P + H", Reference::implicit,
       settings_of(long_series, safe_rate)},
      {"CG, S = 10", "cg", "S", "P + H", Reference::implicit, settings_of(S)},
      {"iDARTS, K = 2", "neumann", "K", "P + H", Reference::implicit, settings_of(K)},
      {"iDARTS, K = 2, rate 1/L", "neumann", "K", "P + H", Reference::implicit, settings_of(K, safe_rate)},
  };
  std::vector<Measured> found;
  for (const Row& row : rows) {
    options.progress(row.method);
    found.push_back({row, bench.measure(row.estimator, row.settings)});
  }
  const Hypergradient &exact = found[0].h, &darts = found[1].h, &t1t2 = found[2].h, &reverse = found[3].h,
                      &truncated = found[4].h, &cg = found[6].h, &idarts = found[7].h;
  Json table_rows = Json::array();
  for (const Measured& m : found) {
    const bool implicit = m.row.reference == Reference::implicit;
    table_rows.push_back({{"method", m.row.method},
                          {"steps (paper)", m.row.steps},
                          {"hessian", m.h.counts.hessian},
                          {"cross", m.h.counts.cross},
                          {"memory (paper)", m.row.memory},
                          {"kept bytes", m.h.bytes_kept},
                          {"in w's", fmt::format("{:.1f}", static_cast<double>(m.h.bytes_kept) /
                                                               static_cast<double>(bench.bytes_of_w()))},
                          {"seconds", m.h.seconds},
                          {"reference", implicit ? "implicit" : "unrolled"},
                          {"distance", relative_distance(m.h.value, implicit ? exact.value : reverse.value)},
                          {"ended", name_of(m.h.status)}});
  }
  options.progress("the series by its length");
  std::vector<double> distances;
  const Json series = series_table(bench, safe_rate, exact.value, distances);

  options.progress("twice as many steps");
  const int64_t reverse_8 = bench.measure("reverse", settings_of(0), 2 * T).bytes_kept;
  const int64_t idarts_8 = bench.measure("neumann", settings_of(K), 2 * T).bytes_kept;
  const int64_t idarts_3 = bench.measure("neumann", settings_of(K + 1)).bytes_kept;
  Json claims = Json::array(
      {claim("products: DARTS and T1-T2 take 1 cross, reverse T, truncated K, CG S + 1, iDARTS K + 1",
             costs(darts, 0, 1) && costs(t1t2, 0, 1) && costs(reverse, T - 1, T) &&
                 costs(truncated, K - 1, K) && costs(cg, S, 1) && costs(idarts, K, 1),
             fmt::format(
                 "hessian + cross: {}; {}; {} with T = {}; {} with K = {}; {} with S = {}; {} with K = {}",
                 products_text(darts), products_text(t1t2), products_text(reverse), T,
                 products_text(truncated), K, products_text(cg), S, products_text(idarts), K)),
       claim("reverse mode's memory grows with T, iDARTS's does not",
             reverse_8 > reverse.bytes_kept && idarts_8 == idarts.bytes_kept,
             fmt::format("T = {} and {}: reverse {} and {} bytes, iDARTS {} and {}", T, 2 * T,
                         reverse.bytes_kept, reverse_8, idarts.bytes_kept, idarts_8)),
       claim("iDARTS's memory does not grow with K", idarts_3 == idarts.bytes_kept,
             fmt::format("{} bytes for K = {}, {} for K = {}", idarts.bytes_kept, K, idarts_3, K + 1)),
       claim(
           "the series approaches the implicit hypergradient as K grows, at a rate up to 1 / L (Corollary 1)",
           std::is_sorted(distances.rbegin(), distances.rend()),
           fmt::format("relative distance {:.3g} for K = 0, {:.3g} for K = {}", distances.front(),
                       distances.back(), long_series))});
  return {
      {"tables",
       Json::array({table(fmt::format("Table 4 measured: {} weights (P), {} entries of alpha (H), T = {}",
                                      bench.weights(), bench.alpha(), T),
                          table_rows),
                    series})},
      {"claims", claims},
      {"notes",
       Json::array(
           {fmt::format(
                "Supernet of NAS-Bench-201 with {} channels and {} cells a stage, w after {} steps; {} "
                "made-up images as one batch, double precision, exact cross products (a central difference "
                "counts as two first derivatives instead).",
                bench.net().channels, bench.net().cells, steps_before, batch),
            fmt::format(
                "Implicit rows have the Gauss-Newton matrix + {} I (largest eigenvalue {:.3g}) as their "
                "curvature, and the exact row as their reference; the others differentiate the steps that "
                "were taken and have reverse mode as theirs.",
                damping, 1 / safe_rate),
            "Bytes are of the vectors that an estimator holds at once beside w, x and its result; the graph "
            "of one product, of the same size for all rows, is not among them.",
            "K counts Hessian products: the series has K + 1 terms, as Eqs. 8, 44 and 45 have it. One scan "
            "of table 4 prints the sum to K - 1, the other to K; truncated with K steps has K terms, so that "
            "at a stationary point truncated(K) is the series with K - 1."})}};
}

}  // namespace bilevel::reproduce
