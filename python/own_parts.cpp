#include "python/own_parts.h"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/fields/option_text.h"
#include "python/doors.h"
#include "python/held.h"

namespace bilevel::python {
namespace {

// An estimator that several may hold, as a double loop takes one.
struct SharedEstimator : HypergradientEstimator {
  explicit SharedEstimator(std::shared_ptr<const HypergradientEstimator> e) : all(std::move(e)) {}
  std::string_view name() const override { return all->name(); }
  bool implicit() const override { return all->implicit(); }
  bool needs_positive_curvature() const override { return all->needs_positive_curvature(); }
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    return all->estimate(oracle, request);
  }
  std::shared_ptr<const HypergradientEstimator> all;
};

// An option that would be ignored is an error: an algorithm or an estimator of Python's reads its own
// attributes, the outer steps and, if it runs in a double loop, the inner steps.
void refuse_unread_by_own(const SolveJobOptions& options, const std::string& name, bool is_estimator,
                          bool has_inner_rate) {
  SolveJobOptions o = options;
  const OptionsView view(o);
  const AlgorithmSettings& settings = o.algorithm.settings;
  refuse_ignored_accuracy(o.given, o.automatic, Json(), false);
  if (is_estimator && o.given(o.algorithm.algorithm) && o.algorithm.algorithm != "double-loop") {
    throw OptionError(fmt::format("{} does not take a user-defined estimator: leave it out, or use {}",
                                  named("algorithm", o.algorithm.algorithm),
                                  named("algorithm", "double-loop")));
  }
  std::set<std::string> reads;
  for (const Field& field : outer_fields().rows()) reads.insert(field.name);
  if (is_estimator) {
    for (const Field& field : inner_fields().rows()) reads.insert(field.name);
  }
  if (has_inner_rate) reads.insert("inner_rate");
  for (const std::string& option : algorithm_options()) {
    if (!view.is_given(view.at(option))) continue;
    if (!reads.contains(option)) {
      throw OptionError(
          fmt::format("{} has no effect with {}: give it to {} when it is made", named(option), name, name));
    }
    if (is_estimator || option == "outer_momentum") require_read({"double-loop"}, settings, option);
  }
  if (o.algorithm.solve.on_failure != OnFailure::stop) {
    throw OptionError(fmt::format(
        "{}: {} is user-defined, and repairs are known only for the library's algorithms; leave it out",
        named("on_failure", std::string(name_of(o.algorithm.solve.on_failure))), name));
  }
}

}  // namespace

EstimatorList own_estimators(const py::list& own) {
  EstimatorList list;
  for (const py::handle& one : own) {
    list.push_back(estimator_from(py::reinterpret_borrow<py::object>(one)));
  }
  return list;
}

MakeAlgorithm maker_of(const py::object& object) {
  struct Object {
    py::object object;
  };
  const auto all = held(Object{object});
  return [all](const AlgorithmSettings& settings) -> std::unique_ptr<Algorithm> {
    const py::gil_scoped_acquire lock;
    const py::object copy = py::module_::import("copy").attr("copy")(all->object);
    if (py::hasattr(copy, "inner_rate")) copy.attr("inner_rate") = settings.inner.rate;
    return algorithm_from(copy, settings.outer);
  };
}

SolveJobResult solve_own(SolveJobOptions& o, const py::object& own, RunContext& context) {
  const bool is_estimator = [&] {
    const py::gil_scoped_acquire lock;
    return py::hasattr(own, "compute");
  }();
  AlgorithmSettings& settings = o.algorithm.settings;
  std::unique_ptr<Algorithm> algorithm;
  std::string name;
  bool has_inner_rate = is_estimator;
  {
    const py::gil_scoped_acquire lock;
    name = is_estimator ? estimator_from(own)->name() : algorithm_from(own, settings.outer)->name();
    if (!is_estimator && py::hasattr(own, "inner_rate")) {
      const py::object rate = own.attr("inner_rate");
      has_inner_rate = PyFloat_Check(rate.ptr()) || PyLong_Check(rate.ptr());
    }
  }
  refuse_unread_by_own(o, name, is_estimator, has_inner_rate);
  o.problem.data.tensors = apply(o.compute, context);
  const NamedProblem problem = make_problem(OptionsView(o), o.problem, o.given);
  o.algorithm.solve.seed = o.problem.data.seed;
  o.algorithm.algorithm = "double-loop";
  set_problem_defaults(o.given, problem, o.algorithm);
  o.algorithm.solve.settings.reset();  // a failure names what the registry's algorithms are made of
  {
    const py::gil_scoped_acquire lock;
    if (is_estimator) {
      algorithm =
          std::make_unique<DoubleLoop>(DoubleLoopOptions{.inner = settings.inner, .outer = settings.outer},
                                       std::make_unique<SharedEstimator>(estimator_from(own)));
    } else {
      const bool given = o.given(settings.inner.rate);
      if (has_inner_rate && !given) settings.inner.rate = py::float_(own.attr("inner_rate"));
      algorithm = given ? maker_of(own)(settings) : algorithm_from(own, settings.outer);
      o.algorithm.algorithm = name;
    }
  }
  o.algorithm.solve.validate();
  return run_solve_with(*algorithm, has_inner_rate, problem, o, context);
}

}  // namespace bilevel::python
