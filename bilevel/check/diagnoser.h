#pragma once
// The diagnosis while it is being made: what diagnose() knows about one problem and point, shared by its
// parts. Each part is a file: diagnose (the order), diagnose_inner (facts about the inner problem),
// diagnose_references (what is measured against), diagnose_trial, diagnose_methods and diagnose_bounds (the
// rows of estimators), diagnose_recommendation. Only they include this.

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "bilevel/check/bounds.h"
#include "bilevel/check/diagnose.h"
#include "bilevel/check/least_terms.h"

namespace bilevel::diagnosis {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
// What all methods are measured against may take so many times the calls of one of them.
constexpr int64_t newton_share = 32, loop_share = 8, inverse_share = 5;

using Clock = std::chrono::steady_clock;
inline double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double length(const Tensor& t) { return t.norm().item<double>(); }
double relative_error(const Tensor& value, const Tensor& reference);

bool is_one_of(const std::string& name, std::initializer_list<const char*> names);
bool has_terms(const std::string& name);
bool is_series(const std::string& name);
// The same numbers as reverse, kept or ordered in another way.
bool is_reverse(const std::string& name);

class Diagnoser {
 public:
  Diagnoser(const DiagnosedProblem& named, const DiagnoseOptions& options,
            const std::function<void(const std::string&)>& progress)
      : named_(named), options_(options), progress_(progress), oracle_(*named.problem) {
    options_.validate();
  }

  Diagnosis run();

 private:
  void say(const std::string& what) const {
    if (progress_) progress_(what);
  }

  // What one call costs, how the curvature looks, and the inner loop.
  void time_units();
  Spectrum spectrum_at(const Tensor& w, const CurvatureOptions& curvature = {});
  InnerPoint point_at(const Tensor& w);
  double zero(const Spectrum& s) const;
  bool positive(const Spectrum& s) const { return s.smallest > zero(s); }
  bool negative(const Spectrum& s) const { return s.smallest < -zero(s); }
  InnerState state_at(int64_t t);
  Trajectory standing_at(const InnerState& state) const;
  int64_t state_bytes() const;
  void set_rates(double smallest, double largest);

  // The three kinds of problem.
  bool find_solution();
  Tensor loop_end();
  void diagnose_solution();
  void find_steps();
  void diagnose_iterate();
  bool has_gauss_newton(const Tensor& w);
  void choose_curvature(const Tensor& w);
  void find_iterate_reference(const Tensor& w);
  void find_unrolled_reference();
  void diagnose_steps();

  // One estimator.
  struct Trial {
    Hypergradient hypergradient;
    double error = none;
    int64_t terms = 0, steps = 0;
  };
  Hypergradient run_from_start(const HypergradientEstimator& estimator, int64_t steps);
  Trial try_terms(const EstimatorRow& row, int64_t terms, int64_t steps);
  Trajectory& kept_trajectory(int64_t steps);
  double contraction_of(const std::string& name) const;
  double seconds_of(const OracleCounts& c) const;
  void set_cost(const EstimatorRow& row, const Trial& trial, MethodDiagnosis& d) const;
  bool worth_measuring(const EstimatorRow& row) const;
  void diagnose_method(const EstimatorRow& row);
  void judge(const EstimatorRow& row, MethodDiagnosis& d) const;
  void measure_once(const EstimatorRow& row, MethodDiagnosis& d);
  void measure_terms(const EstimatorRow& row, MethodDiagnosis& d);
  void measure_reverse(const EstimatorRow& row, MethodDiagnosis& d);
  void predict(const EstimatorRow& row, MethodDiagnosis& d);
  void predict_terms(const EstimatorRow& row, MethodDiagnosis& d);
  void find_bound_inputs();

  // The choice.
  const MethodDiagnosis* cheapest() const;
  void recommend();
  bool affordable(const MethodDiagnosis& d) const;
  void verify(const MethodDiagnosis& best);
  std::string sentence(const MethodDiagnosis* best) const;

  const DiagnosedProblem& named_;
  DiagnoseOptions options_;
  const std::function<void(const std::string&)>& progress_;
  Oracle oracle_;
  Diagnosis report_;
  Tensor x_, start_;
  InnerOptions inner_;
  std::map<int64_t, InnerState> states_;
  Tensor implicit_, unrolled_;  // what implicit methods and those through the steps are measured against
  bool invertible_ = false;     // the curvature at the iterate is positive
  Spectrum inverted_;           // of that curvature
  Trajectory kept_;
  int64_t kept_steps_ = -1;
  std::optional<LeastTerms> reverse_;
  Trial reverse_trial_;
  std::optional<BoundInputs> bound_inputs_;
  double scale_ = 0;
};

}  // namespace bilevel::diagnosis
