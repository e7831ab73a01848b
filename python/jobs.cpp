// The jobs of the library: each takes keywords that its field table names and gives back plain data.

#include <ATen/Parallel.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/core/spectrum.h"
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
#include "python/data.h"
#include "python/hypergradient_options.h"
#include "python/job_results.h"
#include "python/keywords.h"
#include "python/listener.h"
#include "python/module.h"
#include "python/own_parts.h"
#include "python/problem.h"

namespace bilevel::python {
namespace {

// What a job was called with, beside its options: `call` is a dict of Python's side
// (python/bilevel/_jobs.py).
struct Call {
  py::dict keywords, place;
  py::object listener;
  py::object data;           // in memory, or None
  py::object problem, x, w;  // user-defined, or None
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

// ---- user-defined problems ----

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

py::dict check(const py::dict& arguments) {
  const Call call = read(arguments);
  CheckJobOptions options;
  give("check", options, call);
  options.check.own = own_estimators(call.own);
  const Shapes shapes = open_door(call, options.problem);
  return run_job("check", options, call, shapes, run_check);
}

py::dict diagnose(const py::dict& arguments) {
  const Call call = read(arguments);
  DiagnoseJobOptions options;
  give("diagnose", options, call);
  options.diagnose.own = own_estimators(call.own);
  const Shapes shapes = open_door(call, options.problem);
  return run_job("diagnose", options, call, shapes, run_diagnose);
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
  const auto train_on = [](const TrainJobOptions& o, const ImageData& d, RunContext& c) {
    return run_train_on(d, o, c);
  };
  add("train", data_job<TrainJobOptions, ImageData>("train", images_from, run_train, train_on));
  add("learn", plain_job<LearnJobOptions>("learn", run_learn));
  add("adapt", plain_job<AdaptJobOptions>("adapt", run_adapt));
  add("predict", plain_job<PredictJobOptions>("predict", run_predict));
  add("export", plain_job<ExportJobOptions>("export", run_export));
  add("count", plain_job<CountJobOptions>("count", run_count));
  add("query", plain_job<QueryJobOptions>("query", run_query));
  m.attr("jobs") = jobs;
}

}  // namespace bilevel::python
