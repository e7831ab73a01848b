#include "bilevel/jobs/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/check/verdict.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

// Whether all of the text is one such number.
template <typename Number>
bool reads_as(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

}  // namespace

// ---- options ----

std::string word_of(const TermSweep& sweep) { return fmt::format("K={}..{}", sweep.first, sweep.last); }

void read_word(const std::string& word, TermSweep& sweep) {
  const std::string_view view = word;
  const size_t dots = view.find("..");
  TermSweep read;
  if (!view.starts_with("K=") || dots == std::string_view::npos ||
      !reads_as(view.substr(2, dots - 2), read.first) || !reads_as(view.substr(dots + 2), read.last)) {
    throw std::invalid_argument("must look like K=0..40");
  }
  sweep = read;
}

std::string word_of(const LinearRate& rate) { return rate.automatic ? "auto" : word_of(rate.value); }

void read_word(const std::string& word, LinearRate& rate) {
  LinearRate read{.automatic = word == "auto"};
  if (!read.automatic && (!reads_as(word, read.value) || !(read.value >= 0))) {
    throw std::invalid_argument("must be auto or a number of at least 0");
  }
  rate = read;
}

const Fields<CheckJobOptions>& CheckJobOptions::fields() {
  static const Fields<CheckJobOptions> table = [] {
    using O = CheckJobOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.problem; }, ProblemChoice::fields());
    f.add(
         "methods", [](O & o) -> auto& { return o.check.methods; },
         "estimators, separated by commas; default: all")
        .first();
    f.add(
         "terms", [](O & o) -> auto& { return o.check.settings.terms; },
         "K: Hessian products of neumann, steps of cg, minres and fixed-point, rank of nystrom (cg and "
         "minres: to rounding, unless this is given)")
        .in(at_least(0, bounds::within_step))
        .first();
    f.add(
         "truncate", [](O & o) -> auto& { return o.check.settings.truncate; },
         "K: number of steps that truncated keeps")
        .in(at_least(0, bounds::within_step))
        .first();
    f.add(
         "sweep", [](O & o) -> auto& { return o.sweep; },
         "K=FROM..TO: for each estimator that has a K, show the errors at each K with the bound and the "
         "theory")
        .first();

    f.heading("inner loop");
    f.add(
         "inner_steps", [](O & o) -> auto& { return o.check.inner.steps; },
         "T: inner steps; by default enough to solve a convex problem")
        .in(at_least(0, bounds::within_step))
        .by_rule()
        .first();
    f.add(
         "inner_rate", [](O & o) -> auto& { return o.check.inner.rate; },
         "rate of the inner steps; default: chosen for the problem")
        .in(above(0))
        .by_rule()
        .first();
    f.add(
        "inner_optimizer", [](O & o) -> auto& { return o.check.inner.optimizer; },
        "inner optimiser: gd, heavy-ball, nesterov or adam");
    f.add(
         "inner_momentum", [](O & o) -> auto& { return o.check.inner.momentum; },
         "momentum of heavy-ball and nesterov")
        .in(from_0_below_1());
    f.add(
        "inner_schedule", [](O & o) -> auto& { return o.check.inner.schedule; },
        "how the inner rate falls: constant, inverse-sqrt, cosine or linear");

    f.heading("implicit estimators");
    f.add(
         "curvature", [](O & o) -> auto& { return o.check.settings.curvature.kind; },
         "curvature matrix of the implicit estimators and of their reference: hessian (default) or "
         "gauss-newton (default, with some damping, on supernet)")
        .one_of({"hessian", "gauss-newton"})
        .by_rule();
    f.add(
         "damping", [](O & o) -> auto& { return o.check.settings.curvature.damping; },
         "damping rho in H + rho I")
        .in(at_least(0))
        .by_rule();
    f.add(
         "linear_rate", [](O & o) -> auto& { return o.linear_rate; },
         "linear rate of neumann and fixed-point; 0 = the inner rate, auto = 1 / the largest curvature (the "
         "default on supernet)")
        .by_rule();
    f.add(
         "reference", [](O & o) -> auto& { return o.reference; },
         "where the implicit reference is taken: solution (of the inner problem) or iterate (where the inner "
         "loop ends; the default on supernet)")
        .one_of({"solution", "iterate"})
        .by_rule();
    f.add(
        "difference_hessian", [](O & o) -> auto& { return o.check.settings.curvature.difference_hessian; },
        "use central differences in place of Hessian products");
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.check.settings.curvature.difference_cross; },
        "use central differences in place of the cross product, as iDARTS does");
    f.add(
         "difference_step", [](O & o) -> auto& { return o.check.settings.curvature.difference_step; },
         "distance that w is moved for a difference")
        .in(above(0));

    f.heading("");
    f.add(
         "checkpoint_megabytes", [](O & o) -> auto& { return o.checkpoint_megabytes; },
         "memory budget of reverse-binomial in MB; default: room for about log2(T) states, at most 64")
        .in(above(0, 1e9))
        .by_rule();
    f.add(
         "save", [](O & o) -> auto& { return o.save; }, "folder to write each hypergradient to, as NAME.npy")
        .is(FieldKind::place)
        .first();
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

// An option that would be ignored is an error. The curvature and its damping are the reference's, too, and
// the seed is that of the starting points.
void refuse_unread(const OptionsView& options, const std::vector<std::string>& methods) {
  if (methods.empty()) return;
  for (const Field& setting : EstimatorSettings::fields().rows()) {
    const std::string own = setting.name, name = own == "byte_budget" ? "checkpoint_megabytes" : own;
    const Field* field = options.find(name);
    const bool of_all = own == "curvature" || own == "damping" || own == "seed";
    if (field == nullptr || of_all || !options.is_given(*field)) continue;
    const auto reads = [&](const std::string& method) { return find_estimator(method).options.has(own); };
    if (std::any_of(methods.begin(), methods.end(), reads)) continue;
    std::vector<std::string> readers;
    for (const EstimatorRow& row : estimator_rows()) {
      if (row.options.has(own)) readers.push_back(row.name);
    }
    throw OptionError(
        no_effect(named(name), named("methods", fmt::format("{}", fmt::join(methods, ","))), readers));
  }
}

// The problem's own choices, unless the user made one. Who asks for a curvature gets that one, undamped.
void set_curvature(const CheckDefaults& defaults, CheckJobOptions& o) {
  CurvatureOptions& curvature = o.check.settings.curvature;
  const bool own_curvature = o.given(curvature.kind);
  if (!own_curvature) curvature.kind = curvature.difference_hessian ? "hessian" : defaults.curvature;
  if (!own_curvature && !o.given(curvature.damping)) curvature.damping = defaults.damping;
  if (!o.given(o.linear_rate)) o.linear_rate.automatic = defaults.linear_rate_auto;
  if (!o.given(o.reference)) o.reference = defaults.solvable ? "solution" : "iterate";
  o.check.linear_rate_auto = o.linear_rate.automatic;
  o.check.settings.linear_rate = o.linear_rate.value;
  o.check.reference_at_iterate = o.reference == "iterate";
}

NamedProblem set_up(CheckJobOptions& o, const RunContext& context) {
  const OptionsView view(o);
  refuse_unread(view, o.check.methods);
  o.problem.data.tensors = apply(o.compute, context);
  NamedProblem problem = make_problem(view, o.problem, o.given);
  const uint64_t seed = o.problem.data.seed;
  InnerOptions& inner = o.check.inner;
  if (!o.given(inner.steps)) inner.steps = problem.inner_steps;
  if (!o.given(inner.rate)) {
    inner.rate = problem.inner_rate;
  } else if (problem.problem->inner_rate(problem.problem->initial_outer(seed)).defined()) {
    throw OptionError(fmt::format("{}: problem {} learns its rate, which is part of x; leave it out",
                                  named("inner_rate"), problem.name));
  }
  inner.schedule.total_steps = std::max<int64_t>(inner.steps, 1);
  set_curvature(problem.check, o);
  o.check.settings.seed = o.check.seed = seed;
  o.check.terms_given = o.given(o.check.settings.terms);
  o.check.budget_given = o.given(o.checkpoint_megabytes);
  const Field& megabytes = view.at("checkpoint_megabytes");
  megabytes.require(view.words(megabytes));  // of a C++ caller, too: it becomes a whole number
  o.check.settings.byte_budget = std::max<int64_t>(static_cast<int64_t>(o.checkpoint_megabytes * 1e6), 1);
  if (o.sweep) o.check.sweep = {o.sweep->first, o.sweep->last};
  return problem;
}

// ---- what came out ----

Json row_json(const MethodRow& row, const CheckResult& r, bool of_sweep) {
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

Json check_json(const CheckResult& r) {
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
  out["series"] = {{"rate", number(r.linear_rate)}, {"contraction", number(r.series_contraction)}};
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

void save_hypergradients(const CheckResult& r, const std::filesystem::path& folder) {
  for (const MethodRow& row : r.methods) {
    if (row.hypergradient.value.defined()) write_npy(folder / (row.name + ".npy"), row.hypergradient.value);
  }
  if (r.implicit.value.defined()) write_npy(folder / "reference-implicit.npy", r.implicit.value);
  if (r.unrolled.value.defined()) write_npy(folder / "reference-unrolled.npy", r.unrolled.value);
}

}  // namespace

CheckJobResult run_check(CheckJobOptions o, RunContext& context) {
  const NamedProblem problem = set_up(o, context);
  // Before the work, so that a folder that cannot be had costs nothing.
  if (!o.save.empty()) {
    try {
      make_folder(o.save);
    } catch (const FileError& error) {
      throw RunError(fmt::format("{}: {}", named("save", o.save), error.cause()));
    }
  }
  CheckJobResult result;
  result.check =
      check_problem(problem, o.check, [&](const std::string& what) { context.progress("check: " + what); });
  result.json = check_json(result.check);
  if (!o.save.empty()) write_files(result.end, [&] { save_hypergradients(result.check, o.save); });
  return result;
}

}  // namespace bilevel
