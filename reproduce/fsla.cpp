// FSLA (Li, Gu and Huang 2022), section 6.1: how fast the estimates of its Lemma 2 approach the hypergradient
// of a quadratic, where that is known in closed form.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/hypergradients/general.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/quadratic.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

constexpr double rate = 2e-5;

struct Estimate {
  double error = 0;  // |estimate - exact|^2, as in the figure
  int64_t products = 0;
};

// K inner steps from the same start, then the estimator with K terms. NS and CG solve at the last iterate; BP
// and FSLA use all of them.
Estimate estimate(const Quadratic& problem, const Tensor& x, const Tensor& exact, const std::string& name,
                  const std::string& method, int64_t K) {
  EstimatorSettings settings;
  settings.terms = name == "NS" ? K - 1 : K;  // FSLA's NS with K has K terms
  settings.linear_rate = rate;
  Oracle oracle(problem);
  const auto found = hypergradient_at(oracle, x, problem.initial_inner(0), {.steps = K, .rate = rate},
                                      *make_estimator(method, settings));
  return {std::pow((found.hypergradient.value - exact).norm().item<double>(), 2),
          found.hypergradient.counts.hessian};
}

// FSLA goes on from K to K + 1 by one Hessian product, the others begin anew: the products for all K up to
// this one.
Json first_set(const Quadratic& problem, const Tensor& x, const std::vector<int64_t>& lengths, Json& claims,
               const ReproduceOptions& options) {
  const Tensor exact = problem.hypergradient(x);
  const double scale = std::pow(exact.norm().item<double>(), 2);
  const std::vector<std::pair<std::string, std::string>> methods = {
      {"FSLA", "general-forward"}, {"NS", "neumann"}, {"BP", "reverse"}, {"CG", "cg"}};
  Json rows = Json::array();
  std::map<std::string, std::vector<double>> errors;
  std::map<std::string, std::vector<int64_t>> products;
  for (const int64_t K : lengths) {
    options.progress(fmt::format("K = {}", K));
    Json row = {{"K", K}};
    for (const auto& [name, method] : methods) {
      const Estimate e = estimate(problem, x, exact, name, method, K);
      row[name] = e.error / scale;
      errors[name].push_back(e.error / scale);
      products[name].push_back(e.products);
    }
    row["FSLA products"] = products["FSLA"].back();
    row["NS products"] = products["NS"].back();
    rows.push_back(row);
  }
  bool converge = true;
  for (const auto& [name, list] : errors) converge = converge && list.back() < 1e-10;
  claims.push_back(
      claim("the errors of all four converge", converge,
            fmt::format("relative squared errors at K = {}: FSLA {:.1e}, NS {:.1e}, BP {:.1e}, CG {:.1e}",
                        lengths.back(), errors["FSLA"].back(), errors["NS"].back(), errors["BP"].back(),
                        errors["CG"].back())));
  double apart = 0;
  bool behind = true;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (errors["NS"][i] < 1e-20) continue;  // rounding
    apart = std::max(apart, std::abs(errors["BP"][i] - errors["NS"][i]) / errors["NS"][i]);
    behind = behind && errors["FSLA"][i] > errors["NS"][i];
  }
  claims.push_back(claim("BP and NS are the same where second derivatives are constant", apart < 1e-6,
                         fmt::format("their errors differ by at most {:.1e} of themselves", apart)));
  claims.push_back(
      claim("FSLA takes somewhat more steps", behind, "its error is above that of NS at every K"));
  // FSLA's pass to the longest K goes through all the shorter ones; the others begin anew for each.
  const int64_t one_pass = products["FSLA"].back();
  int64_t anew = 0;
  for (const int64_t count : products["NS"]) anew += count;
  claims.push_back(
      claim("but less work, since K + 1 goes on from K", one_pass < anew,
            fmt::format("{} Hessian products for all K of this table, against {} of NS", one_pass, anew)));
  return table("Figure 1, first set: relative squared error", rows);
}

// w_k = w* + u / k^a, p_k at w_k, forward mode: the error follows the sequence's rate (Corollary 3.1).
Json second_set(const Quadratic& problem, const Tensor& x, const std::vector<int64_t>& lengths, uint64_t seed,
                Json& claims) {
  const Tensor exact = problem.hypergradient(x), solution = problem.solution(x);
  const double scale = std::pow(exact.norm().item<double>(), 2);
  const Tensor away = Random(named_seed(seed, "figure 1")).uniform(solution.sizes(), solution.options());
  Json rows = Json::array();
  std::map<double, std::vector<double>> errors;
  for (const int64_t K : lengths) {
    Json row = {{"K", K}};
    for (const double a : {2.0, 1.0, 0.5, 0.25}) {
      Oracle oracle(problem);
      const Tensor w = solution + away / std::pow(static_cast<double>(K), a);
      // As the paper has it: the estimate is that of NS, at the K-th point.
      Trajectory inner;
      inner.options.rate = rate;
      inner.options.steps = 0;
      inner.optimizer = make_inner_optimizer(inner.options);
      inner.final = inner.optimizer->start(w);
      EstimatorSettings settings;
      settings.terms = K - 1;
      settings.linear_rate = rate;
      const Tensor value =
          make_estimator("neumann", settings)->estimate(oracle, {.x = x, .inner = inner}).value;
      const double error = std::pow((value - exact).norm().item<double>(), 2) / scale;
      errors[a].push_back(error);
      row[fmt::format("k^-{:g}", a)] = error;
    }
    rows.push_back(row);
  }
  // Between the last two lengths a squared error must fall like k^(-2a).
  bool follows = true;
  std::string why;
  const size_t last = lengths.size() - 1;
  const double ratio = std::log(static_cast<double>(lengths[last]) / static_cast<double>(lengths[last - 1]));
  for (const auto& [a, list] : errors) {
    const double slope = std::log(list[last] / list[last - 1]) / ratio;
    follows = follows && std::abs(slope + 2 * a) < 0.1 * 2 * a;
    why += fmt::format("{}k^{:.2f} for {:g}", why.empty() ? "" : ", ", slope, a);
  }
  claims.push_back(claim("the squared error follows the rate of the sequence, k^(-2a)", follows, why));
  return table("Figure 1, second set: relative squared error for w* + u / k^a", rows);
}

}  // namespace

Json fsla_figure1(const ReproduceOptions& options) {
  const Quadratic problem(QuadraticOptions{.seed = options.seed});
  const Tensor x = problem.initial_outer(options.seed);
  std::vector<int64_t> lengths = {1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600, 800, 1000};
  if (options.full()) lengths.insert(lengths.end(), {1500, 2000});
  Json claims = Json::array(), tables = Json::array();
  tables.push_back(first_set(problem, x, lengths, claims, options));
  tables.push_back(second_set(problem, x, lengths, options.seed, claims));
  return {{"tables", tables},
          {"claims", claims},
          {"notes", Json::array({"10,000 samples, dimension 5, rate 2e-5, as in the paper; its figure has no "
                                 "numbers in the text."})}};
}

}  // namespace bilevel::reproduce
