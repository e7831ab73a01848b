#include "bilevel/check/diagnose.h"

#include <utility>

#include "bilevel/check/diagnoser.h"
#include "bilevel/core/require.h"

namespace bilevel {

namespace diagnosis {

Diagnosis Diagnoser::run() {
  const auto begin = Clock::now();
  x_ = options_.x.defined() ? options_.x : named_.problem->initial_outer(options_.seed);
  start_ = options_.w.defined() ? options_.w : named_.problem->initial_inner(options_.seed);
  const Tensor learned = named_.problem->inner_start(x_);
  if (learned.defined()) start_ = learned.detach();
  result_.problem = named_.name;
  result_.inner_size = start_.numel();
  result_.outer_size = x_.numel();
  result_.accuracy = options_.accuracy;
  result_.curvature = options_.settings.curvature;
  inner_ = options_.inner;
  if (!options_.given.steps) inner_.steps = named_.inner_steps;
  if (!options_.given.rate) inner_.rate = named_.inner_rate;
  inner_.schedule = {};
  time_units();
  say("spectrum at the start");
  result_.start = point_at(start_);
  const bool only_steps_matter =
      learned.defined() || oracle_.inner_rate(x_).defined() || !named_.problem->inner_loss_uses_outer();
  if (only_steps_matter) {
    diagnose_steps();
  } else if (!(named_.check.solvable && find_solution())) {
    diagnose_iterate();
  } else {
    diagnose_solution();
  }
  recommend();
  result_.counts = oracle_.counts();
  if (another_oracle_) result_.counts += another_oracle_->counts();
  result_.seconds = since(begin);
  return std::move(result_);
}

}  // namespace diagnosis

std::string_view name_of(Basis basis) {
  switch (basis) {
    case Basis::none:
      return "not known";
    case Basis::measured:
      return "measured";
    case Basis::extrapolated:
      return "extrapolated";
    case Basis::bound:
      return "bound";
  }
  return "?";
}

void DiagnoseOptions::validate() const {
  require_between_0_and_1("accuracy", accuracy);
  require_at_least("terms", settings.terms, 0);
  require_at_least("truncate", settings.truncate, 0);
  require_at_least("calls", calls_per_method, 1);
  settings.curvature.validate();
  inner.validate();
}

DiagnosedProblem diagnosed(const NamedProblem& p) {
  return {.problem = p.problem.get(),
          .name = p.name,
          .inner_steps = p.inner_steps,
          .inner_rate = p.inner_rate,
          .convex = p.convex,
          .rate_limit = p.constant_curvature ? 0 : p.inner_rate,
          .largest_curvature = p.largest_curvature,
          .growth = p.constant_curvature ? 1.0 : 2.0,
          .check = p.check};
}

Diagnosis diagnose(const DiagnosedProblem& problem, const DiagnoseOptions& options,
                   const std::function<void(const std::string&)>& progress) {
  return diagnosis::Diagnoser(problem, options, progress).run();
}

}  // namespace bilevel
