// `bilevel check`: every hypergradient estimator on one problem, against the implicit and the unrolled
// reference.

#include "bilevel/jobs/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bilevel/hypergradients/registry.h"
#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/number_text.h"

namespace bilevel::cli {
namespace {

std::string scientific(double value) { return number_text(value, "{:.2e}"); }

// A number, with `~` where it is an estimate.
std::string bound_text(const MethodRow& row) {
  return (row.hypergradient.bound.kind == BoundKind::estimated ? "~" : "") + scientific(row.error_bound);
}

void print_bound_legend(const std::vector<MethodRow>& rows, const char* mark) {
  bool estimated = false;
  double largest = 0;
  for (const MethodRow& row : rows) {
    estimated = estimated || row.hypergradient.bound.kind == BoundKind::estimated;
    if (row.vacuous) largest = std::max(largest, row.error_bound);
  }
  if (estimated) fmt::print("~ estimated from the spectrum and nearby points; the error may be larger\n");
  if (largest > 0) {
    fmt::print(
        "{} the bound is longer than the estimate (up to {:.2g} times the reference) and says nothing, not "
        "even the estimate's sign; solve the inner problem further (--inner-steps) or regularise it more\n",
        mark, largest);
  }
}

void print_table(const CheckResult& r) {
  fmt::print("problem {}: {} inner and {} outer variables\n", r.problem, r.inner_size, r.outer_size);
  fmt::print("inner loop: {} steps of {} at rate {:.4g}, ending at |grad_w g| = {:.2e}\n", r.inner.steps,
             r.inner.optimizer, r.inner_rate, r.inner_gradient_norm);
  const std::string damped = r.curvature.damping > 0 ? fmt::format(" + {:g} I", r.curvature.damping) : "";
  const std::string curvature = r.curvature.kind != "hessian" || !damped.empty()
                                    ? fmt::format(" ({}{})", r.curvature.kind, damped)
                                    : "";
  fmt::print(
      "inner curvature{}: {:.4g} to {:.4g}, condition number {}, largest safe rate {}, contraction {}\n",
      curvature, r.spectrum.smallest, r.spectrum.largest,
      number_text(r.spectrum.condition_number(), "{:.4g}"), number_text(r.largest_safe_rate, "{:.4g}"),
      number_text(r.contraction, "{:.4f}"));
  if (r.linear_rate != r.inner_rate) {
    fmt::print("linear rate {:.4g}: contraction {} per term\n", r.linear_rate,
               number_text(r.series_contraction, "{:.4f}"));
  }
  fmt::print("\n");
  fmt::print("{:<17}{:>6}{:>10}{:>11}{:>9}{:>10}{:>8}{:>8}{:>8}{:>8}{:>11}{:>9}  {}\n", "", "", "implicit",
             "", "", "unrolled", "grad g", "grad f", "", "", "", "", "");
  fmt::print("{:<17}{:>6}{:>10}{:>11}{:>9}{:>10}{:>8}{:>8}{:>8}{:>8}{:>11}{:>9}  {}\n", "method", "K",
             "error", "bound", "cosine", "error", "calls", "calls", "hessian", "cross", "kept", "seconds",
             "status");
  for (const MethodRow& row : r.methods) {
    const auto& h = row.hypergradient;
    fmt::print("{:<17}{:>6}{:>10}{:>11}{:>9}{:>10}{:>8}{:>8}{:>8}{:>8}{:>11}{:>9.3f}  {}\n", row.name,
               row.terms ? std::to_string(*row.terms) : "", scientific(row.error_implicit),
               row.vacuous ? "vacuous" : bound_text(row), number_text(row.cosine_implicit, "{:.5f}"),
               scientific(row.error_unrolled), h.counts.inner_gradient, h.counts.outer_gradient,
               h.counts.hessian, h.counts.cross, bytes_text(h.bytes_kept), h.seconds, name_of(h.status));
  }
  print_bound_legend(r.methods, "vacuous:");
}

// Beside each K: the error against the implicit reference with the bound on it, and what K alone leaves with
// what the theory says of that.
void print_sweep(const CheckResult& r) {
  std::string name;
  double previous_error = NAN, previous_theory = NAN;
  for (const MethodRow& row : r.sweep) {
    if (row.name != name) {
      name = row.name;
      previous_error = previous_theory = NAN;
      fmt::print("\n{:<6}{:>24}{:>48}\n{:>6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", name, "implicit",
                 row.implicit ? "its linear system at the final iterate" : "the steps left out (unrolled)",
                 "K", "error", "bound", "error", "theory", "falls by", "theory");
    }
    fmt::print("{:>6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", *row.terms, scientific(row.error_implicit),
               bound_text(row) + (row.vacuous ? "*" : ""), scientific(row.own_error), scientific(row.theory),
               number_text(row.own_error / previous_error, "{:.4f}"),
               number_text(row.theory / previous_theory, "{:.4f}"));
    previous_error = row.own_error;
    previous_theory = row.theory;
  }
  fmt::print(
      "bound: on the first error, including the part from the unsolved inner problem (docs/bounds.md)\n"
      "theory: the second error in exact arithmetic, with the curvature measured at the final iterate; it "
      "leaves out the unsolved inner problem\n");
  print_bound_legend(r.sweep, "* vacuous:");
}

void print_check(const CheckJobResult& result) {
  const CheckResult& r = result.check;
  print_table(r);
  if (!r.sweep.empty()) print_sweep(r);
  fmt::print("\n");
  for (const std::string& sentence : r.verdict) fmt::print("{}\n", sentence);
}

}  // namespace

void add_check_command(CLI::App& app, int& exit_code) {
  add_question<CheckJobOptions>(
      app, exit_code,
      {"check", "Compare hypergradient estimators with the exact answer on a problem",
       "Examples:\n"
       "  bilevel check --problem quadratic\n"
       "  bilevel check --problem ridge --methods neumann,truncated,cg --sweep K=0..40\n"
       "  bilevel check --problem mlp --curvature gauss-newton --damping 0.01\n"
       "  bilevel check --problem supernet --space nasbench201 --channels 2 --cells 1 --image-size 8"},
      run_check, print_check);
}

}  // namespace bilevel::cli
