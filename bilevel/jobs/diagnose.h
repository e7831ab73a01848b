#pragma once
// The job `diagnose`: how a problem's inner curvature looks, what every estimator would cost for a target
// accuracy, and which one to use: of a named problem, or of a run that is there already, where its
// checkpoint is. On your own problem, call diagnose() of bilevel/check/diagnose.h.

#include <optional>
#include <string>
#include <vector>

#include "bilevel/check/diagnose.h"
#include "bilevel/fields/fields.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/jobs/run_problem.h"
#include "bilevel/nas/search_diagnosis.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct DiagnoseJobOptions {
  ProblemChoice problem = {};
  std::string at = {};  // folder of a run of solve, clean, tune or search; empty = the problem's start
  DiagnoseOptions diagnose = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<DiagnoseJobOptions>& fields();
};

// A job that follows the advice, as its options.
struct SuggestedJob {
  std::string job = {};
  NamedWords options = {};  // a flag has no words
};
std::string command_line(const SuggestedJob& suggested);  // to be typed: "bilevel check --problem ridge ..."

struct DiagnoseJobResult {
  std::optional<nas::SearchDiagnosis> search = {};  // of a run of search, in place of all the rest
  Diagnosis diagnosis = {};
  std::vector<SuggestedJob> suggested = {};  // none where the rate that was given is not safe
  Json json = {};
};

DiagnoseJobResult run_diagnose(DiagnoseJobOptions options, RunContext& context);

}  // namespace bilevel
