#include "cli/diagnose_output.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "bilevel/hypergradients/registry.h"

namespace bilevel::cli {
namespace {

std::string number_text(double value, const char* format = "{:.3g}") {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// A measured number stands as it is; the others say what they are.
std::string error_text(double error, Basis basis) {
  if (!std::isfinite(error)) return "-";
  const char* mark = basis == Basis::extrapolated ? "~" : basis == Basis::bound ? "<" : "";
  return fmt::format("{}{:.1e}", mark, error);
}

const char* reference_name(ReferenceKind kind) {
  switch (kind) {
    case ReferenceKind::none:
      return "none";
    case ReferenceKind::solution:
      return "solution";
    case ReferenceKind::iterate:
      return "iterate";
    case ReferenceKind::unrolled:
      return "unrolled";
  }
  return "?";
}

std::string reference_text(const Diagnosis& d) {
  switch (d.reference) {
    case ReferenceKind::solution:
      return "the exact hypergradient: Newton's method to rounding, then the implicit formula";
    case ReferenceKind::iterate:
      return "the implicit formula where the inner loop ends (and, for what goes through the steps, all of "
             "them)";
    case ReferenceKind::unrolled:
      return "the derivative through all steps taken";
    case ReferenceKind::none:
      return "none";
  }
  return "?";
}

Json point_json(const InnerPoint& p) {
  return {{"smallest_eigenvalue", number(p.spectrum.smallest)},
          {"largest_eigenvalue", number(p.spectrum.largest)},
          {"condition_number", number(p.spectrum.condition_number())},
          {"spectrum_status", name_of(p.spectrum.status)},
          {"products", p.spectrum.products},
          {"gradient_norm", number(p.gradient_norm)},
          {"distance", number(p.distance)}};
}

Json method_json(const MethodDiagnosis& m) {
  Json out = {{"name", m.name}};
  if (m.asked_terms) {
    out["asked"] = {
        {"K", *m.asked_terms}, {"error", number(m.asked_error)}, {"basis", name_of(m.asked_basis)}};
  }
  out["reaches"] = m.reaches;
  out["usable"] = m.usable;
  if (m.terms) out["K"] = *m.terms;
  out["inner_steps"] = m.inner_steps;
  out["error"] = number(m.error);
  out["basis"] = name_of(m.basis);
  out["another_error"] = number(m.another_error);
  out["counts"] = counts_json(m.counts);
  out["calls"] = oracle_calls(m.counts);
  out["seconds"] = m.seconds;
  out["bytes"] = m.bytes;
  if (!m.note.empty()) out["note"] = m.note;
  return out;
}

// All digits that it takes to be the same number again: a resumed run reads it.
std::string typed(double value) { return fmt::format("{}", value); }

OptionList recommended(const Diagnosis& d, bool rate_is_learned, const char* series_rate) {
  const Recommendation& r = d.recommendation;
  OptionList options;
  if (r.has_terms) {
    options.emplace_back(r.method == "truncated" ? "--truncate" : "--terms", fmt::format("{}", r.terms));
  }
  options.emplace_back("--inner-steps", fmt::format("{}", r.inner.steps));
  if (!rate_is_learned) options.emplace_back("--inner-rate", typed(r.inner.rate));
  options.emplace_back("--inner-optimizer", r.inner.optimizer);
  if (r.inner.optimizer == "nesterov" || r.inner.optimizer == "heavy-ball") {
    options.emplace_back("--inner-momentum", typed(r.inner.momentum));
  }
  const std::set<EstimatorOption>& reads = find_estimator(r.method).reads;
  if (reads.contains(EstimatorOption::damping) &&
      (r.curvature.kind != "hessian" || r.curvature.damping > 0)) {
    options.emplace_back("--curvature", r.curvature.kind);
    options.emplace_back("--damping", typed(r.curvature.damping));
  }
  if (r.series_rate > 0 && reads.contains(EstimatorOption::series_rate))
    options.emplace_back(series_rate, typed(r.series_rate));
  return options;
}

void print_point(const char* where, const InnerPoint& p) {
  fmt::print("{:<22}{:>11}{:>11}{:>11}{:>13}{:>13}{:>10}\n", where, number_text(p.spectrum.smallest),
             number_text(p.spectrum.largest), number_text(p.spectrum.condition_number()),
             number_text(p.gradient_norm), number_text(p.distance), name_of(p.spectrum.status));
}

}  // namespace

OptionList check_options(const Diagnosis& d, bool rate_is_learned) {
  OptionList options = {{"--methods", d.recommendation.method}};
  for (auto& option : recommended(d, rate_is_learned, "--series-rate")) options.push_back(std::move(option));
  if (d.reference == ReferenceKind::iterate) options.emplace_back("--reference", "iterate");
  return options;
}

OptionList algorithm_options(const Diagnosis& d, bool rate_is_learned) {
  OptionList options = {{"--algorithm", "double-loop"}, {"--method", d.recommendation.method}};
  for (auto& option : recommended(d, rate_is_learned, "--linear-rate")) options.push_back(std::move(option));
  return options;
}

Json diagnosis_json(const Diagnosis& d, const std::vector<std::string>& commands) {
  Json out = {{"problem", d.problem},
              {"inner_size", d.inner_size},
              {"outer_size", d.outer_size},
              {"accuracy", d.accuracy}};
  out["start"] = point_json(d.start);
  out["end"] = point_json(d.end);
  out["solution"] = d.solution ? point_json(*d.solution) : Json(nullptr);
  out["negative_curvature"] = d.negative_curvature;
  const bool counted = d.steps_predicted < std::numeric_limits<int64_t>::max();
  out["inner"] = {{"optimizer", d.inner.optimizer},
                  {"steps", d.inner.steps},
                  {"rate", number(d.inner.rate)},
                  {"momentum", d.inner.momentum},
                  {"largest_safe_rate", number(d.largest_safe_rate)},
                  {"unsafe_rate", d.unsafe_rate},
                  {"best_rate", number(d.best_rate)},
                  {"contraction", number(d.contraction)},
                  {"best_contraction", number(d.best_contraction)},
                  {"steps_predicted", counted ? Json(d.steps_predicted) : Json(nullptr)},
                  {"end_steps", d.end_steps},
                  {"error", number(d.inner_error)},
                  {"basis", name_of(d.inner_basis)}};
  out["reference"] = reference_name(d.reference);
  if (!d.reference_why.empty()) out["reference_why"] = d.reference_why;
  out["curvature"] = {{"kind", d.curvature.kind}, {"damping", d.curvature.damping}};
  out["unit_seconds"] = {{"inner_gradient", d.unit.inner_gradient},
                         {"outer_gradient", d.unit.outer_gradient},
                         {"hessian", d.unit.hessian},
                         {"cross", d.unit.cross}};
  out["methods"] = Json::array();
  for (const MethodDiagnosis& m : d.methods) out["methods"].push_back(method_json(m));
  out["recommendation"] = recommendation_json(d.recommendation);
  out["commands"] = commands;
  out["counts"] = counts_json(d.counts);
  out["seconds"] = d.seconds;
  return out;
}

void print_diagnosis(const Diagnosis& d, const std::vector<std::string>& commands) {
  fmt::print("problem {}: {} inner and {} outer variables; wished accuracy {:g}\n\n", d.problem, d.inner_size,
             d.outer_size, d.accuracy);
  fmt::print("{:<22}{:>11}{:>11}{:>11}{:>13}{:>13}{:>10}\n", "inner problem", "smallest", "largest",
             "condition", "|grad_w g|", "|w - w*| <=", "spectrum");
  print_point("at the start", d.start);
  print_point(fmt::format("after T = {} steps", d.end_steps).c_str(), d.end);
  if (d.solution) print_point("solved", *d.solution);
  if (d.negative_curvature) {
    fmt::print("negative curvature: {:.3g} of the largest\n",
               d.end.spectrum.smallest / d.end.spectrum.largest);
  }
  fmt::print("\ninner steps of {}: largest safe rate {}, best rate {} ({} a step); chosen {:g} ({} a step)\n",
             d.inner.optimizer, number_text(d.largest_safe_rate), number_text(d.best_rate),
             number_text(d.best_contraction, "{:.4f}"), d.inner.rate, number_text(d.contraction, "{:.4f}"));
  if (std::isfinite(d.inner_error)) {
    fmt::print("after {} of them the unsolved inner problem alone costs an error of {} ({})\n", d.end_steps,
               number_text(d.inner_error), name_of(d.inner_basis));
  }
  fmt::print("one inner gradient {:.3g} s, Hessian product {:.3g} s, cross product {:.3g} s\n",
             d.unit.inner_gradient, d.unit.hessian, d.unit.cross);
  fmt::print("errors against {}\n", reference_text(d));
  if (!d.reference_why.empty()) fmt::print("({})\n", d.reference_why);
  fmt::print("\n{:<17}{:>15}{:>8}{:>7}{:>10}{:>9}{:>10}{:>11}  {}\n", "method", "error at K", "needs K", "T",
             "error", "calls", "seconds", "memory", "");
  for (const MethodDiagnosis& m : d.methods) {
    const std::string asked =
        m.asked_terms ? fmt::format("{} at {}", error_text(m.asked_error, m.asked_basis), *m.asked_terms)
                      : "";
    fmt::print("{:<17}{:>15}{:>8}{:>7}{:>10}{:>9}{:>10}{:>11}  {}\n", m.name, asked,
               m.terms ? std::to_string(*m.terms) : "", m.inner_steps, error_text(m.error, m.basis),
               oracle_calls(m.counts), number_text(m.seconds), bytes_text(m.bytes), m.note);
  }
  fmt::print("(~ extrapolated from measured errors, < a bound; the rest is measured)\n\n{}\n\n",
             d.recommendation.sentence);
  for (const std::string& command : commands) fmt::print("  {}\n", command);
}

}  // namespace bilevel::cli
