#pragma once
// The diagnosis while it is being made: what diagnose() knows about one problem and point, shared by its
// parts. Each part is a file: diagnose (the order), diagnose_inner (facts about the inner problem),
// diagnose_references (what is measured against), diagnose_trial, diagnose_methods and diagnose_bounds (the
// rows of estimators), diagnose_recommendation. Only they include this.

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/check/bounds.h"
#include "bilevel/check/diagnose.h"
#include "bilevel/check/least_terms.h"
#include "bilevel/check/linear_outer.h"
#include "bilevel/check/method.h"

namespace bilevel::diagnosis {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
// What all estimators are measured against may take so many times the calls of one of them.
constexpr int64_t newton_share = 32, loop_share = 8, inverse_share = 5;

using Clock = std::chrono::steady_clock;
inline double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double length(const Tensor& t) { return t.norm().item<double>(); }
double relative_error(const Tensor& value, const Tensor& reference);

// States that reverse-binomial keeps here: as many as it takes to recompute each step a few times.
int64_t binomial_slots(int64_t steps);

class Diagnoser {
 public:
  Diagnoser(const DiagnosedProblem& named, const DiagnoseOptions& options,
            const std::function<void(const std::string&)>& progress)
      : named_(named), options_(options), progress_(progress), oracle_(*named.problem) {
    options_.validate();
    methods_ = all_methods(registry_names(), options_.own);
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
  // By the contraction, which an error may need before it falls; 0 = not known.
  int64_t expected_steps() const { return result_.contraction < 1 ? result_.steps_predicted : 0; }

  // The three kinds of problem.
  bool find_solution();
  Tensor loop_end();
  void diagnose_solution();
  void find_steps();
  void diagnose_iterate();
  // A second question to the same inner problem at w, and its exact answer there: q - C H^-1 p with a random
  // p. Where x moves p moves, and an estimator must not be right for the first one alone.
  void ask_another(const Tensor& w);
  Tensor another_implicit(const Tensor& w, const Spectrum& inverted);
  int64_t calls() const;  // so far, of both questions
  bool has_gauss_newton(const Tensor& w);
  void choose_curvature(const Tensor& w);
  void find_iterate_reference(const Tensor& w);
  void find_unrolled_reference();
  void diagnose_steps();

  // One estimator.
  struct Trial {
    Hypergradient hypergradient;
    double error = none;
    double another_error = none;
    int64_t terms = 0, steps = 0;
  };
  // With this K, and room for the states of so many steps.
  std::shared_ptr<const HypergradientEstimator> made(const Method& row, int64_t terms, int64_t steps) const;
  Hypergradient run_from_start(Oracle& oracle, const HypergradientEstimator& estimator, int64_t steps);
  Hypergradient estimate(Oracle& oracle, const Method& row, int64_t terms, int64_t steps);
  Trial try_terms(const Method& row, int64_t terms, int64_t steps);
  double another_error(const Method& row, int64_t terms, int64_t steps);
  double worse_error(const Method& row, Trial& trial);
  const Trajectory& kept_trajectory(int64_t steps);
  double contraction_of(const Method& row) const;
  double seconds_of(const OracleCounts& c) const;
  void set_cost(const Method& row, const Trial& trial, MethodDiagnosis& d) const;
  void add_inner_loop(MethodDiagnosis& d) const;
  int64_t loop_steps() const;  // T of what goes through the steps
  bool gives_what_reverse_does(const Method& row) const;
  std::optional<StepsCost> cost_of(const Method& row, int64_t terms, int64_t steps) const;
  void set_predicted_cost(const StepsCost& cost, MethodDiagnosis& d) const;
  bool worth_measuring(const Method& row) const;
  void diagnose_method(const Method& row);
  void judge(const Method& row, MethodDiagnosis& d) const;
  void measure_once(const Method& row, MethodDiagnosis& d);
  void measure_terms(const Method& row, MethodDiagnosis& d);
  void find_reverse_steps(const Method& row);
  void measure_reverse(const Method& row, MethodDiagnosis& d);
  void predict(const Method& row, MethodDiagnosis& d);
  void predict_terms(const Method& row, MethodDiagnosis& d);
  void find_theory_inputs();

  // The choice.
  const Method& method(const std::string& name) const;
  MethodDiagnosis* cheapest();
  void recommend();
  void take(const MethodDiagnosis* best);
  bool affordable(const MethodDiagnosis& d) const;
  void verify(const MethodDiagnosis& best);
  std::string unsafe_sentence() const;
  std::string sentence(const MethodDiagnosis* best) const;

  const DiagnosedProblem& named_;
  DiagnoseOptions options_;
  std::vector<Method> methods_;
  const std::function<void(const std::string&)>& progress_;
  Oracle oracle_;
  Diagnosis result_;
  Tensor x_, start_;
  InnerOptions inner_;
  std::map<int64_t, InnerState> states_;
  Tensor implicit_, unrolled_;  // what implicit estimators and those through the steps are measured against
  bool invertible_ = false;     // the curvature at the iterate is positive
  Spectrum inverted_;           // of that curvature
  Trajectory kept_;
  int64_t kept_steps_ = -1;
  std::optional<LeastTerms> reverse_;
  Trial reverse_trial_;
  OracleCounts inverse_counts_;  // of a nearly exact inverse from nothing
  std::unique_ptr<WithLinearOuter> another_;
  std::unique_ptr<Oracle> another_oracle_;
  Tensor another_implicit_, another_unrolled_;
  std::optional<TheoryInputs> theory_inputs_;
  double scale_ = 0;
};

}  // namespace bilevel::diagnosis
