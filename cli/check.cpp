// `bilevel check`: every hypergradient estimator on one problem, against the implicit and the unrolled
// reference.

#include "bilevel/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/check/verdict.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/hypergradients/registry.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"
#include "cli/problem_options.h"
#include "cli/progress.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  CheckOptions check;
  std::string curvature = "hessian";
  std::string series_rate = "0";
  std::string reference = "solution";
  std::string schedule = "constant";
  std::string sweep;
  std::string save;
  double checkpoint_megabytes = 64;
};

// ---- options ----

int64_t parse_integer(std::string_view text, const std::string& whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw std::invalid_argument(fmt::format("--sweep {}: must look like K=0..40", whole));
  }
  return value;
}

double parse_rate(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || !(value >= 0)) {
    throw std::invalid_argument(
        fmt::format("--series-rate {}: must be auto or a number of at least 0", text));
  }
  return value;
}

std::pair<int64_t, int64_t> parse_sweep(const std::string& text) {
  const size_t dots = text.find("..");
  if (text.rfind("K=", 0) != 0 || dots == std::string::npos) {
    throw std::invalid_argument(fmt::format("--sweep {}: must look like K=0..40", text));
  }
  const std::string_view view = text;
  return {parse_integer(view.substr(2, dots - 2), text), parse_integer(view.substr(dots + 2), text)};
}

void add_options(CLI::App& command, Options& o) {
  add_problem_options(command, o.problem);
  command.add_option("--methods", o.check.methods, "estimators, separated by commas; all of them by default")
      ->delimiter(',');
  command
      .add_option("--terms", o.check.settings.terms,
                  "K: Hessian products of neumann, steps of cg, minres and fixed-point, rank of nystrom "
                  "(cg and minres: to rounding, unless this is given)")
      ->capture_default_str();
  command.add_option("--truncate", o.check.settings.truncate, "K: the steps that truncated keeps")
      ->capture_default_str();
  command.add_option(
      "--sweep", o.sweep,
      "K=FROM..TO: of each method that has a K, the errors for each K with the bound and the theory");

  auto* inner = command.add_option_group("inner loop");
  inner->add_option("--inner-steps", o.check.inner.steps,
                    "T; the problem's own default solves the convex ones");
  inner->add_option("--inner-rate", o.check.inner.rate, "rate of the inner steps; the problem has a default");
  inner->add_option("--inner-optimizer", o.check.inner.optimizer, "gd, heavy-ball, nesterov or adam")
      ->capture_default_str();
  inner->add_option("--inner-momentum", o.check.inner.momentum, "of heavy-ball and nesterov")
      ->capture_default_str();
  inner->add_option("--inner-schedule", o.schedule, "constant, inverse-sqrt, cosine or linear")
      ->capture_default_str();

  auto* implicit = command.add_option_group("implicit estimators");
  implicit
      ->add_option("--curvature", o.curvature,
                   "hessian or gauss-newton, of the implicit estimators and of their reference; hessian, but "
                   "gauss-newton with some damping on supernet")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}));
  implicit->add_option("--damping", o.check.settings.curvature.damping, "rho in H + rho I");
  implicit->add_option(
      "--series-rate", o.series_rate,
      "rate of neumann and fixed-point; 0 = the inner rate, auto = 1 / the largest curvature "
      "(the default on supernet)");
  implicit
      ->add_option("--reference", o.reference,
                   "where the implicit reference is taken: solution of the inner problem, or iterate, where "
                   "the inner loop ends (the default on supernet)")
      ->check(CLI::IsMember({"solution", "iterate"}));
  implicit->add_flag("--difference-hessian", o.check.settings.curvature.difference_hessian,
                     "central differences in place of Hessian products");
  implicit->add_flag("--difference-mixed", o.check.settings.curvature.difference_mixed,
                     "central differences in place of the cross product, as iDARTS");
  implicit
      ->add_option("--difference-step", o.check.settings.curvature.difference_step,
                   "how far w moves for a difference")
      ->capture_default_str();

  command.add_option("--checkpoint-megabytes", o.checkpoint_megabytes,
                     "budget of reverse-binomial; by default room for about log2(T) states, at most 64 MB");
  command.add_option("--save", o.save, "folder for each hypergradient as NAME.npy");
  add_common_options(command, o.common);
}

// The problem's own choices, unless the user made one. Who asks for a curvature gets that one, undamped.
void set_curvature(const CLI::App& command, const CheckDefaults& defaults, Options& o) {
  const bool own_curvature = command.count("--curvature") > 0;
  if (!own_curvature) o.curvature = defaults.curvature;
  CurvatureOptions& curvature = o.check.settings.curvature;
  if (command.count("--damping") == 0 && !own_curvature) curvature.damping = defaults.damping;
  if (curvature.difference_hessian && !own_curvature) o.curvature = "hessian";
  curvature.kind = o.curvature;
  o.check.series_rate_auto =
      command.count("--series-rate") > 0 ? o.series_rate == "auto" : defaults.series_rate_auto;
  if (!o.check.series_rate_auto) o.check.settings.series_rate = parse_rate(o.series_rate);
  o.check.reference_at_iterate =
      command.count("--reference") > 0 ? o.reference == "iterate" : !defaults.solvable;
}

// An option that would be ignored is an error. The curvature and its damping are the reference's, too.
void refuse_ignored(const CLI::App& command, const Options& o) {
  if (o.check.methods.empty()) return;
  const std::vector<std::pair<const char*, EstimatorOption>> options = {
      {"--terms", EstimatorOption::terms},
      {"--truncate", EstimatorOption::truncate},
      {"--series-rate", EstimatorOption::series_rate},
      {"--difference-hessian", EstimatorOption::difference_hessian},
      {"--difference-mixed", EstimatorOption::difference_mixed},
      {"--checkpoint-megabytes", EstimatorOption::byte_budget}};
  for (const auto& [name, option] : options) {
    const bool is_read = std::any_of(
        o.check.methods.begin(), o.check.methods.end(),
        [&, wanted = option](const std::string& m) { return find_estimator(m).reads.contains(wanted); });
    if (command.count(name) > 0 && !is_read) {
      throw std::invalid_argument(fmt::format("{} changes nothing for --methods {}: leave it out", name,
                                              fmt::join(o.check.methods, ",")));
    }
  }
}

NamedProblem prepare(const CLI::App& command, Options& o) {
  refuse_ignored(command, o);
  o.problem.data.tensors = apply_common_options(o.common);
  NamedProblem problem = make_problem(command, o.problem);
  InnerOptions& inner = o.check.inner;
  if (command.count("--inner-steps") == 0) inner.steps = problem.inner_steps;
  if (command.count("--inner-rate") == 0) {
    inner.rate = problem.inner_rate;
  } else if (problem.problem->inner_rate(problem.problem->initial_outer(o.problem.data.seed)).defined()) {
    throw std::invalid_argument(fmt::format(
        "--inner-rate: problem {} learns its rate, which is part of x; leave it out", problem.name));
  }
  inner.schedule.kind = parse_schedule_kind(o.schedule);
  inner.schedule.total_steps = std::max<int64_t>(inner.steps, 1);
  set_curvature(command, problem.check, o);
  o.check.settings.seed = o.problem.data.seed;
  o.check.seed = o.problem.data.seed;
  o.check.terms_given = command.count("--terms") > 0;
  o.check.budget_given = command.count("--checkpoint-megabytes") > 0;
  if (!(o.checkpoint_megabytes > 0) || o.checkpoint_megabytes > 1e9) {
    throw std::invalid_argument(
        fmt::format("--checkpoint-megabytes {}: must be positive and at most 1e9", o.checkpoint_megabytes));
  }
  o.check.settings.byte_budget = std::max<int64_t>(static_cast<int64_t>(o.checkpoint_megabytes * 1e6), 1);
  if (!o.sweep.empty()) o.check.sweep = parse_sweep(o.sweep);
  return problem;
}

// ---- JSON ----

Json row_json(const MethodRow& row, const CheckReport& r, bool of_sweep) {
  const Hypergradient& h = row.hypergradient;
  Json out = {{"name", row.name}};
  if (row.terms) out["K"] = *row.terms;
  out["error_implicit"] = number(row.error_implicit);
  out["error_unrolled"] = number(row.error_unrolled);
  out["cosine_implicit"] = number(row.cosine_implicit);
  out["cosine_unrolled"] = number(row.cosine_unrolled);
  out["error_bound"] = number(row.error_bound);
  out["error_bound_kind"] = name_of(h.bound.kind);
  if (h.bound.kind != BoundKind::none) out["error_bound_vacuous"] = row.vacuous;
  if (!h.no_bound.empty()) out["no_bound"] = h.no_bound;
  if (of_sweep) {
    out["own_error"] = number(row.own_error);
    out["theory"] = number(row.theory);
  }
  out["counts"] = counts_json(h.counts);
  out["bytes_kept"] = h.bytes_kept;
  out["seconds"] = h.seconds;
  out["status"] = name_of(h.status);
  if (!of_sweep) {
    out["trusted"] = row.trusted;
    out["trusted_for"] = Json::array();
    for (const std::string& what : trusted_for(row, r)) out["trusted_for"].push_back(what);
    out["why"] = row.why;
  }
  return out;
}

Json report_json(const CheckReport& r) {
  Json out;
  out["problem"] = r.problem;
  out["inner_size"] = r.inner_size;
  out["outer_size"] = r.outer_size;
  out["inner"] = {{"optimizer", r.inner.optimizer},        {"steps", r.inner.steps},
                  {"rate", number(r.inner_rate)},          {"gradient_norm", number(r.inner_gradient_norm)},
                  {"counts", counts_json(r.inner_counts)}, {"seconds", r.inner_seconds}};
  out["spectrum"] = {{"smallest", number(r.spectrum.smallest)},
                     {"largest", number(r.spectrum.largest)},
                     {"condition_number", number(r.spectrum.condition_number())},
                     {"largest_safe_rate", number(r.largest_safe_rate)},
                     {"contraction", number(r.contraction)},
                     {"status", name_of(r.spectrum.status)},
                     {"method", r.spectrum.method}};
  out["curvature"] = {{"kind", r.curvature.kind}, {"damping", r.curvature.damping}};
  out["series"] = {{"rate", number(r.series_rate)}, {"contraction", number(r.series_contraction)}};
  out["references"] = {
      {"implicit",
       r.implicit.value.defined() ? Json(r.implicit.at_iterate ? "iterate" : "newton") : Json(nullptr)},
      {"implicit_gradient_norm", number(r.implicit.inner.gradient_norm)},
      {"unrolled", r.unrolled.value.defined() ? Json("autograd through the unrolled graph") : Json(nullptr)}};
  if (!r.implicit.value.defined()) out["references"]["why"] = r.implicit.why;
  if (!r.unrolled.value.defined()) out["references"]["unrolled_why"] = r.unrolled.why;
  out["methods"] = Json::array();
  for (const MethodRow& row : r.methods) out["methods"].push_back(row_json(row, r, false));
  if (!r.sweep.empty()) {
    out["sweep"] = Json::array();
    for (const MethodRow& row : r.sweep) out["sweep"].push_back(row_json(row, r, true));
  }
  out["verdict"] = r.verdict;
  return out;
}

// ---- text ----

std::string bytes_text(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string number_text(double value, const char* format = "{:.2e}") {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

// A number, with `~` where it is an estimate.
std::string bound_text(const MethodRow& row) {
  return (row.hypergradient.bound.kind == BoundKind::estimated ? "~" : "") + number_text(row.error_bound);
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
        "even the "
        "estimate's sign; solve the inner problem further (--inner-steps) or regularise it more\n",
        mark, largest);
  }
}

void print_table(const CheckReport& r) {
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
  if (r.series_rate != r.inner_rate) {
    fmt::print("series: rate {:.4g}, contraction {} a term\n", r.series_rate,
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
               row.terms ? std::to_string(*row.terms) : "", number_text(row.error_implicit),
               row.vacuous ? "vacuous" : bound_text(row), number_text(row.cosine_implicit, "{:.5f}"),
               number_text(row.error_unrolled), h.counts.inner_gradient, h.counts.outer_gradient,
               h.counts.hessian, h.counts.cross, bytes_text(h.bytes_kept), h.seconds, name_of(h.status));
  }
  print_bound_legend(r.methods, "vacuous:");
}

// Beside each K: the error against the implicit reference with the bound on it, and what K alone leaves with
// what the theory says of that.
void print_sweep(const CheckReport& r) {
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
    fmt::print("{:>6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", *row.terms, number_text(row.error_implicit),
               bound_text(row) + (row.vacuous ? "*" : ""), number_text(row.own_error),
               number_text(row.theory), number_text(row.own_error / previous_error, "{:.4f}"),
               number_text(row.theory / previous_theory, "{:.4f}"));
    previous_error = row.own_error;
    previous_theory = row.theory;
  }
  fmt::print(
      "bound: on the first error; what the unsolved inner problem leaves is in it (docs/bounds.md)\n"
      "theory: of the second error, in exact arithmetic and with the curvature measured at the final "
      "iterate; it "
      "knows nothing of the unsolved inner problem\n");
  print_bound_legend(r.sweep, "* vacuous:");
}

void print_text(const CheckReport& r) {
  print_table(r);
  if (!r.sweep.empty()) print_sweep(r);
  fmt::print("\n");
  for (const std::string& sentence : r.verdict) fmt::print("{}\n", sentence);
}

void save(const CheckReport& r, const std::string& folder) {
  const std::filesystem::path path(folder);
  for (const MethodRow& row : r.methods) {
    if (row.hypergradient.value.defined()) write_npy(path / (row.name + ".npy"), row.hypergradient.value);
  }
  if (r.implicit.value.defined()) write_npy(path / "reference-implicit.npy", r.implicit.value);
  if (r.unrolled.value.defined()) write_npy(path / "reference-unrolled.npy", r.unrolled.value);
}

}  // namespace

void add_check_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command =
      app.add_subcommand("check", "Compare hypergradient estimators with the exact answer on a problem");
  command->footer(
      "Examples:\n"
      "  bilevel check --problem quadratic\n"
      "  bilevel check --problem ridge --methods neumann,truncated,cg --sweep K=0..40\n"
      "  bilevel check --problem mlp --curvature gauss-newton --damping 0.01\n"
      "  bilevel check --problem supernet --space nasbench201 --channels 2 --cells 1 --image-size 8");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options] {
    Options& o = *options;
    const NamedProblem problem = prepare(*command, o);
    // Before the work, so that a folder that cannot be had costs nothing.
    if (!o.save.empty()) make_folder(o.save, "--save");
    CheckReport report;
    {
      Progress progress(o.common);
      report = check_problem(problem, o.check, [&](const std::string& what) { progress("check: " + what); });
    }
    if (o.common.json) {
      fmt::print("{}\n", report_json(report).dump());
    } else {
      print_text(report);
    }
    if (!o.save.empty()) save(report, o.save);  // last: a full disk must not cost the answer
  });
}

}  // namespace bilevel::cli
