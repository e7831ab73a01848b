#pragma once
// The problem of a run that is there already, made again from the options in its config.json: for `diagnose`,
// which looks at it where its checkpoint stands. One function per command that has such problems, beside its
// options.

#include <cstdint>
#include <memory>
#include <string>

#include "bilevel/jobs/run_problem.h"
#include "bilevel/nas/search_diagnosis.h"

namespace bilevel::cli {

// A supernet has its own, shorter diagnosis, here at the run's weights and alpha.
nas::SearchDiagnosis diagnose_search_run(const std::string& folder, double accuracy);

}  // namespace bilevel::cli
