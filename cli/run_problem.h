#pragma once
// The problem of a run that is there already, made again from the options in its config.json: for `diagnose`,
// which looks at it where its checkpoint stands. One function per command that has such problems, beside its
// options.

#include <cstdint>
#include <memory>
#include <string>

#include "bilevel/check/diagnose.h"
#include "bilevel/nas/search_diagnosis.h"

namespace bilevel::cli {

struct RunProblem {
  std::shared_ptr<const void> owner;  // of what `facts` points to
  DiagnosedProblem facts;
  InnerOptions inner;  // the run's rate, where it has its own reasons for one
  bool rate_is_given = false;
  uint64_t seed = 0;
};
RunProblem clean_problem(const std::string& folder);
RunProblem tune_problem(const std::string& folder);

// A supernet has its own, shorter diagnosis, here at the run's weights and alpha.
nas::SearchDiagnosis diagnose_search_run(const std::string& folder, double accuracy);

}  // namespace bilevel::cli
