#pragma once
// The job `learn`: learning across few-shot tasks known by name, or made of class folders or of images in
// memory. On other kinds of tasks, call meta::learn() of bilevel/meta/learn.h.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/learn_baseline.h"
#include "bilevel/meta/learn.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/task_data.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

// Options that were not given and still have these values get the defaults of the data and the learner.
struct LearnJobOptions {
  LearnJobOptions();
  meta::TaskDataOptions data = {};
  meta::NetworkOptions network = {};
  meta::LearnerOptions learner = {};
  meta::LearnOptions learn = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<LearnJobOptions>& fields();
};

struct LearnJobResult {
  LearnJobOptions options = {};  // that were used
  std::string data = {};         // what was found
  bool regression = false;
  int64_t outer_variables = 0, inner_variables = 0;  // across tasks, and of each
  meta::LearnSummary summary = {};
  RawInputBaseline baseline = {};  // of classes
  bool beats_baseline() const { return summary.test.accuracy > baseline.test.accuracy; }
  // It does better on the validation tasks, and is returned in place of what was learned.
  bool returns_baseline() const {
    return baseline.valid.tasks > 0 && baseline.valid.accuracy > summary.state.best_valid.accuracy;
  }
  const meta::TaskScore& test() const { return returns_baseline() ? baseline.test : summary.test; }
  std::string folder = {};              // empty: nothing is kept
  std::vector<std::string> files = {};  // in it, beside summary.json: `model` holds what was learned
  Json json = {};                       // all of it, as summary.json has it
  JobEnd end = {};
};
// Throws OptionError for options that cannot be, RunError for a run that cannot be resumed.
LearnJobResult run_learn(LearnJobOptions options, RunContext& context);
// On images in memory (meta::task_set_of); of `options.data` the shape of tasks and the seed are read.
LearnJobResult run_learn_on(const meta::ImageTaskSet& images, LearnJobOptions options, RunContext& context);

std::string score_text(const meta::TaskScore& score, bool regression);

}  // namespace bilevel
