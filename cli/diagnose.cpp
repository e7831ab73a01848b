// `bilevel diagnose`: how a problem's inner curvature looks, what every
// estimator would cost for a target accuracy, and which one to use.

#include "bilevel/jobs/diagnose.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/number_text.h"

namespace bilevel::cli {
namespace {

// A measured number stands as it is; the others say what they are.
std::string error_text(double error, Basis basis) {
  if (!std::isfinite(error)) return "-";
  const char* mark = basis == Basis::extrapolated ? "~" : basis == Basis::bound ? "<" : "";
  return fmt::format("{}{:.1e}", mark, error);
}

std::string reference_text(const Diagnosis& d) {
  switch (d.reference) {
    case ReferenceKind::solution:
      return "the exact hypergradient: Newton's method to rounding, then the implicit formula";
    case ReferenceKind::iterate:
      return "the implicit formula where the inner loop ends (for estimators that go through the steps, all "
             "of them)";
    case ReferenceKind::unrolled:
      return "the derivative through all steps taken";
    case ReferenceKind::none:
      return "none";
  }
  return "?";
}

void print_point(const char* where, const InnerPoint& p) {
  fmt::print("{:<22}{:>11}{:>11}{:>11}{:>13}{:>13}{:>10}\n", where, number_text(p.spectrum.smallest),
             number_text(p.spectrum.largest), number_text(p.spectrum.condition_number()),
             number_text(p.gradient_norm), number_text(p.distance), name_of(p.spectrum.status));
}

void print_diagnosis(const DiagnoseJobResult& result) {
  if (result.search) {
    fmt::print("{}\n", result.search->sentence);
    return;
  }
  const Diagnosis& d = result.diagnosis;
  fmt::print("problem {}: {} inner and {} outer variables; target accuracy {:g}\n\n", d.problem, d.inner_size,
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
  fmt::print(
      "\ninner steps of {}: largest safe rate {}, best rate {} ({} per step); chosen {:g} ({} per step)\n",
      d.inner.optimizer, number_text(d.largest_safe_rate), number_text(d.best_rate),
      number_text(d.best_contraction, "{:.4f}"), d.inner.rate, number_text(d.contraction, "{:.4f}"));
  if (std::isfinite(d.inner_error)) {
    fmt::print("after {} of them, the unsolved inner problem alone causes an error of {} ({})\n", d.end_steps,
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
  for (const SuggestedJob& job : result.suggested) fmt::print("  {}\n", command_line(job));
}

}  // namespace

void add_diagnose_command(CLI::App& app, int& exit_code) {
  add_question<DiagnoseJobOptions>(
      app, exit_code,
      {"diagnose", "Measure how hard a problem is and recommend an estimator, K, T and a rate",
       "Examples:\n"
       "  bilevel diagnose --problem ridge\n"
       "  bilevel diagnose --problem hyper-cleaning --data fashion-mnist --accuracy 0.01\n"
       "  bilevel diagnose --problem mlp --json\n"
       "  bilevel diagnose --at runs/solve-20260101-120000-0"},
      run_diagnose, print_diagnosis);
}

}  // namespace bilevel::cli
