#pragma once
// The job `check`: every hypergradient estimator on one problem known by name, against the implicit and the
// unrolled reference. On your own problem, call check_problem() of bilevel/check/check.h.

#include <cstdint>
#include <optional>
#include <string>

#include "bilevel/check/check.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

// As one word: "K=0..40".
struct TermSweep {
  int64_t first = 0, last = 0;
};
std::string word_of(const TermSweep& sweep);
void read_word(const std::string& word, TermSweep& sweep);

// As one word: "auto", which is 1 / the largest curvature, or a number; 0 = the inner rate.
struct LinearRate {
  bool automatic = false;
  double value = 0;
};
std::string word_of(const LinearRate& rate);
void read_word(const std::string& word, LinearRate& rate);

struct CheckJobOptions {
  ProblemChoice problem = {};
  // Its estimators, inner loop, terms and curvature; what depends on the problem or stands below is filled
  // in.
  CheckOptions check = {};
  std::optional<TermSweep> sweep = {};
  LinearRate linear_rate = {};
  std::string reference = "solution";  // or iterate: where the implicit reference is taken
  double checkpoint_megabytes = 64;
  std::string save = {};  // folder for each hypergradient as NAME.npy; empty = none
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<CheckJobOptions>& fields();
};

struct CheckJobResult {
  CheckResult check = {};
  Json json = {};
  JobEnd end = {};  // failed where a file could not be written; the result is there
};
CheckJobResult run_check(CheckJobOptions options, RunContext& context);

}  // namespace bilevel
