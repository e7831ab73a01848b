// The jobs of the library: each takes keywords that its field table names and gives back plain data.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/jobs/adapt.h"
#include "bilevel/jobs/check.h"
#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/compare.h"
#include "bilevel/jobs/count.h"
#include "bilevel/jobs/diagnose.h"
#include "bilevel/jobs/export.h"
#include "bilevel/jobs/interact.h"
#include "bilevel/jobs/learn.h"
#include "bilevel/jobs/predict.h"
#include "bilevel/jobs/query.h"
#include "bilevel/jobs/search.h"
#include "bilevel/jobs/solve.h"
#include "bilevel/jobs/train.h"
#include "bilevel/jobs/tune.h"
#include "bilevel/run/result_json.h"
#include "python/data.h"
#include "python/doors.h"
#include "python/held.h"
#include "python/hypergradient_options.h"
#include "python/keywords.h"
#include "python/listener.h"
#include "python/module.h"
#include "python/problem.h"

namespace bilevel::python {
namespace {

// What a job was called with, beside its options: `call` is a dict of Python's side
// (python/bilevel/_jobs.py).
struct Call {
  py::dict keywords, place;
  py::object listener;
  py::object data;           // in memory, or None
  py::object problem, x, w;  // of one's own, or None
  py::object inner_rate;     // of that problem, or None: it is measured
  int64_t inner_steps = 100;
  std::string problem_name;
  bool convex = false;
  py::list own;  // estimators or algorithms that were given as objects
};

Call read(const py::dict& call) {
  Call c;
  c.keywords = call["keywords"];
  c.place = call["place"];
  c.listener = call["listener"];
  c.data = call["data"];
  c.problem = call["problem"];
  c.x = call["x"];
  c.w = call["w"];
  c.inner_rate = call["inner_rate"];
  c.inner_steps = call["inner_steps"].cast<int64_t>();
  c.problem_name = call["problem_name"].cast<std::string>();
  c.convex = call["convex"].cast<bool>();
  c.own = call["own"];
  return c;
}

// ---- problems of one's own ----

// 1 / the largest curvature at the start.
double measured_rate(const Problem& problem) {
  Oracle oracle(problem);
  const Tensor w = problem.initial_inner(0);
  const auto at_start = oracle.linearize(w, problem.initial_outer(0), {});
  SpectrumOptions options;
  options.max_products = 100;
  options.relative_tolerance = 1e-3;
  const Spectrum spectrum = extreme_eigenvalues([&](const Tensor& v) { return at_start->hessian(v); },
                                                w.numel(), w.options(), options);
  return spectrum.largest > 0 ? 1 / spectrum.largest : InnerOptions{}.rate;
}

struct Shapes {
  Structure x, w;
};

// The door of the four jobs on problems.
Shapes open_door(const Call& call, ProblemChoice& choice) {
  if (call.problem.is_none()) return {};
  const PointedProblem point = pointed(call.problem, call.x, call.w);
  const auto problem = std::dynamic_pointer_cast<const PythonProblem>(point.problem);
  if (!problem) throw py::type_error("problem must be a name or a bilevel.Problem");
  const double given_rate = call.inner_rate.is_none() ? 0 : static_cast<double>(py::float_(call.inner_rate));
  choice.own = [problem, given_rate, steps = call.inner_steps, convex = call.convex,
                name = call.problem_name] {
    NamedProblem named;
    named.name = name;
    named.problem = std::make_unique<PythonProblem>(*problem);
    named.inner_rate = given_rate > 0 ? given_rate : measured_rate(*problem);
    named.inner_steps = steps;
    named.convex = convex;
    return named;
  };
  return {point.x_structure, point.w_structure};
}

// ---- results ----

py::dict finished(const Json& json, const JobEnd& end, const std::string& folder) {
  py::dict result = json.is_object() ? py::dict(to_python(json)) : py::dict();
  result["folder"] = folder.empty() ? py::object(py::none()) : py::str(folder);
  result["status"] = py::str(std::string(name_of(end.status)));
  if (!end.message.empty()) result["message"] = python_text(end.message);
  return result;
}

py::object or_none(const Tensor& t) { return t.defined() ? py::cast(t) : py::object(py::none()); }

template <typename Result>
std::string folder_of(const Result& result) {
  if constexpr (requires { result.folder; }) return result.folder;
  return {};
}
template <typename Result>
JobEnd end_of_result(const Result& result) {
  if constexpr (requires { result.end; }) return result.end;
  return {};
}

void add_more(const SolveJobResult& r, const Shapes& shapes, py::dict& out) {
  out["x"] = shapes.x.shown(r.summary.state.x);
  out["w"] = shapes.w.shown(r.summary.inner_solution);
}
void add_more(const CheckJobResult& r, const Shapes& shapes, py::dict& out) {
  py::dict values;
  for (const MethodRow& row : r.check.methods) {
    if (row.hypergradient.value.defined())
      values[py::str(row.name)] = shapes.x.shown(row.hypergradient.value);
  }
  out["hypergradients"] = values;
  out["implicit_reference"] = shapes.x.shown(r.check.implicit.value);
  out["unrolled_reference"] = shapes.x.shown(r.check.unrolled.value);
}
void add_more(const CleanJobResult& r, const Shapes&, py::dict& out) {
  out["by"] = r.by;
  out["weights"] = or_none(r.clean.weights);
  out["suspects"] = r.clean.suspects;  // positions
  out["suggested"] = or_none(r.clean.suggested);
  out["class_names"] = r.sets.class_names;
  if (r.table) {
    out["probabilities"] = r.table->posterior;
    out["model_weights"] = r.table->model.weights;
  } else {
    out["model_weights"] = or_none(r.clean.cleaned.w);
  }
}
void add_more(const TuneJobResult& r, const Shapes&, py::dict& out) {
  out["by"] = r.by;
  out["x"] = or_none(r.x);
  out["model_weights"] = or_none(r.model);
  out["order"] = r.order;
  out["class_names"] = r.class_names;
  out["feature_names"] = r.feature_names;
}
void add_more(const InteractJobResult& r, const Shapes&, py::dict& out) {
  out["cluster_of_task"] = r.suggested;
  out["interactions"] = or_none(r.interact.learned.interaction);
}
void add_more(const AdaptJobResult& r, const Shapes&, py::dict& out) {
  out["probabilities"] = or_none(r.probabilities);
}
void add_more(const PredictJobResult& r, const Shapes&, py::dict& out) {
  if (r.predicts_numbers()) {
    out["numbers"] = r.probabilities.squeeze(1);  // "values" is a method of every mapping
    return;
  }
  out["probabilities"] = r.probabilities;
  out["best"] = r.best;  // positions in `classes`
  py::list names;
  for (const int64_t k : r.best) names.append(r.classes.at(static_cast<size_t>(k)));
  out["labels"] = names;
}
void add_more(const ExportJobResult& r, const Shapes&, py::dict& out) {
  out["description"] = to_python(r.description);
}
void add_more(const DiagnoseJobResult& r, const Shapes&, py::dict& out) {
  py::list calls;
  for (const SuggestedJob& job : r.suggested) {
    py::dict options;
    for (const auto& [name, words] : job.options) options[py::str(name)] = words;
    calls.append(py::make_tuple(job.job, options));
  }
  out["suggested"] = calls;
}
template <typename Result>
void add_more(const Result&, const Shapes&, py::dict&) {}

// The number of threads is the process's, which has other work too: a job has as many as torch has now,
// unless the call names a number, and gives them back.
class Threads {
 public:
  Threads() = default;
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

void keep_threads(OptionsView view) {
  const Field* threads = view.find("threads");
  if (threads == nullptr || view.words(*threads).front() != "0") return;
  view.give(*threads, {word_of(at::get_num_threads())});
  view.forget(*threads);
}

// Runs without the lock.
template <typename Options, typename Run>
py::dict run_job(const std::string& name, Options& options, const Call& call, const Shapes& shapes, Run run) {
  const Threads threads;
  RunContext context = make_context(call.listener, call.place);
  using Result = decltype(run(options, context));
  std::unique_ptr<Result> result;
  {
    const py::gil_scoped_release unlocked;
    result = std::make_unique<Result>(run(options, context));
  }
  py::dict out = finished(result->json, end_of_result(*result), folder_of(*result));
  add_more(*result, shapes, out);
  out["job"] = name;
  return out;
}

template <typename Options>
void give(const std::string& name, Options& options, const Call& call) {
  OptionsView view(options);
  give_keywords(view, name.c_str(), call.keywords, {"out", "resume", "save_every", "progress"});
  take_resumed(name, view, call.place);
  keep_threads(view);
}

// ---- the jobs ----

template <typename Options, typename Run>
std::function<py::dict(const py::dict&)> plain_job(const std::string& name, Run run) {
  return [name, run](const py::dict& arguments) {
    const Call call = read(arguments);
    Options options;
    give(name, options, call);
    return run_job(name, options, call, {}, [&](Options& o, RunContext& c) { return run(o, c); });
  };
}

// On files, or on data in memory.
template <typename Options, typename Data, typename Convert, typename Run, typename RunOn>
std::function<py::dict(const py::dict&)> data_job(const std::string& name, Convert convert, Run run,
                                                  RunOn run_on) {
  return [=](const py::dict& arguments) {
    const Call call = read(arguments);
    Options options;
    give(name, options, call);
    if (call.data.is_none()) {
      return run_job(name, options, call, {}, [&](Options& o, RunContext& c) { return run(o, c); });
    }
    const Data data = convert(call.data);
    return run_job(name, options, call, {}, [&](Options& o, RunContext& c) { return run_on(o, data, c); });
  };
}

EstimatorList own_estimators(const Call& call) {
  EstimatorList list;
  for (const py::handle& one : call.own) {
    list.push_back(estimator_from(py::reinterpret_borrow<py::object>(one)));
  }
  return list;
}

py::dict check(const py::dict& arguments) {
  const Call call = read(arguments);
  CheckJobOptions options;
  give("check", options, call);
  options.check.own = own_estimators(call);
  const Shapes shapes = open_door(call, options.problem);
  return run_job("check", options, call, shapes, run_check);
}

py::dict diagnose(const py::dict& arguments) {
  const Call call = read(arguments);
  DiagnoseJobOptions options;
  give("diagnose", options, call);
  options.diagnose.own = own_estimators(call);
  const Shapes shapes = open_door(call, options.problem);
  return run_job("diagnose", options, call, shapes, run_diagnose);
}

// An algorithm of Python's as comparisons make it: with the outer steps that are tried, and the inner rate
// where it has one.
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

py::dict compare(const py::dict& arguments) {
  const Call call = read(arguments);
  CompareJobOptions options;
  give("compare", options, call);
  for (const py::handle& one : call.own) {
    options.compare.own.push_back({.make = maker_of(py::reinterpret_borrow<py::object>(one))});
  }
  const Shapes shapes = open_door(call, options.problem);
  return run_job("compare", options, call, shapes, run_compare);
}

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
    throw OptionError(fmt::format("{} does not take an estimator of one's own: leave it out, or take {}",
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
    throw OptionError(
        fmt::format("{}: {} is of one's own, and repairs are known for the library's algorithms alone; "
                    "leave it out",
                    named("on_failure", std::string(name_of(o.algorithm.solve.on_failure))), name));
  }
}

// With an algorithm or an estimator of Python's: what the registry knows of its own ones is not asked.
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

py::dict solve_job(const py::dict& arguments) {
  const Call call = read(arguments);
  SolveJobOptions options;
  give("solve", options, call);
  const Shapes shapes = open_door(call, options.problem);
  if (call.own.empty()) return run_job("solve", options, call, shapes, run_solve);
  const py::object own = call.own[0];
  return run_job("solve", options, call, shapes,
                 [&](SolveJobOptions& o, RunContext& c) { return solve_own(o, own, c); });
}

template <typename Options>
py::list table() {
  Options options;
  return described(OptionsView(options));
}

}  // namespace

void add_tables(py::module_& m) {
  m.def("tables", [] {
    py::dict all;
    all["hypergradient"] = table<HypergradientOptions>();
    all["solve"] = table<SolveJobOptions>();
    all["check"] = table<CheckJobOptions>();
    all["compare"] = table<CompareJobOptions>();
    all["diagnose"] = table<DiagnoseJobOptions>();
    all["clean"] = table<CleanJobOptions>();
    all["tune"] = table<TuneJobOptions>();
    all["interact"] = table<InteractJobOptions>();
    all["learn"] = table<LearnJobOptions>();
    all["adapt"] = table<AdaptJobOptions>();
    all["search"] = table<SearchJobOptions>();
    all["train"] = table<TrainJobOptions>();
    all["predict"] = table<PredictJobOptions>();
    all["export"] = table<ExportJobOptions>();
    all["count"] = table<CountJobOptions>();
    all["query"] = table<QueryJobOptions>();
    return all;
  });
  m.def("estimators", [] {
    py::dict all;
    for (const EstimatorRow& row : estimator_rows()) all[py::str(row.name)] = row.summary;
    return all;
  });
  m.def("algorithms", [] {
    py::dict all;
    for (const AlgorithmRow& row : algorithm_rows()) all[py::str(row.name)] = python_text(row.summary);
    return all;
  });
  m.def("problems", [] {
    py::dict all;
    for (const ProblemRow& row : all_problem_rows()) all[py::str(row.name)] = row.summary;
    return all;
  });
}

void add_jobs(py::module_& m) {
  py::dict jobs;
  const auto add = [&](const char* name, std::function<py::dict(const py::dict&)> run) {
    jobs[name] = py::cpp_function(std::move(run));
  };
  add("solve", solve_job);
  add("check", check);
  add("compare", compare);
  add("diagnose", diagnose);
  const auto clean_files = [](const CleanJobOptions& o, RunContext& c) { return run_clean(o, c); };
  const auto clean_on = [](const CleanJobOptions& o, const ExampleSets& d, RunContext& c) {
    return run_clean(o, d, c);
  };
  add("clean", data_job<CleanJobOptions, ExampleSets>("clean", example_sets_from, clean_files, clean_on));
  const auto tune_files = [](const TuneJobOptions& o, RunContext& c) { return run_tune(o, c); };
  const auto tune_on = [](const TuneJobOptions& o, const ExampleSets& d, RunContext& c) {
    return run_tune(o, d, c);
  };
  add("tune", data_job<TuneJobOptions, ExampleSets>("tune", example_sets_from, tune_files, tune_on));
  const auto tasks_files = [](const InteractJobOptions& o, RunContext& c) { return run_interact(o, c); };
  const auto tasks_on = [](const InteractJobOptions& o, const TaskSets& d, RunContext& c) {
    return run_interact(o, d, c);
  };
  add("interact", data_job<InteractJobOptions, TaskSets>("interact", task_sets_from, tasks_files, tasks_on));
  const auto search_on = [](const SearchJobOptions& o, const ImageData& d, RunContext& c) {
    return run_search_on(d, o, c);
  };
  add("search", data_job<SearchJobOptions, ImageData>("search", images_from, run_search, search_on));
  add("train", plain_job<TrainJobOptions>("train", run_train));
  add("learn", plain_job<LearnJobOptions>("learn", run_learn));
  add("adapt", plain_job<AdaptJobOptions>("adapt", run_adapt));
  add("predict", plain_job<PredictJobOptions>("predict", run_predict));
  add("export", plain_job<ExportJobOptions>("export", run_export));
  add("count", plain_job<CountJobOptions>("count", run_count));
  add("query", plain_job<QueryJobOptions>("query", run_query));
  m.attr("jobs") = jobs;
}

}  // namespace bilevel::python
