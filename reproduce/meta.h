#pragma once
// Learners of few-shot tasks side by side, looked at along the way: what the items on K-RMD's table 4 and
// figure 7 and on stocBiO's figures 1, 5 and 6 share.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/meta/learn.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/task_data.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {

struct FewShotGround {
  meta::TaskData data;
  meta::NetworkOptions network;
  std::string note;  // which data, and what they stand for where the paper's are not here

  meta::Learner learner(const meta::LearnerOptions& options, const at::TensorOptions& tensors) const;
};

// The first of `wanted` that is found, else blobs. Names are those of `bilevel learn --data`; any other is a
// folder of class folders of that name. All are looked for in --data-dir, or in the folder beside this one
// where none is given. quick and medium: images of 16 x 16 and so many filters; full: as the papers have
// them.
FewShotGround few_shot_ground(const std::vector<std::string>& wanted, const meta::TaskShape& shape,
                              const std::string& network, int64_t small_filters,
                              const ReproduceOptions& options);

struct FewShotPoint {
  int64_t iteration = 0;
  // Of learning alone, in processor time, which other work on the machine does not change; on a GPU by the
  // clock.
  double seconds = 0;
  double outer_loss = 0;               // mean over the meta-batches since the point before
  meta::TaskScore train, valid, test;  // of no task where the run was not asked for them
};

struct FewShotRun {
  std::string label;
  meta::LearnerOptions learner = {};
  double outer_rate = 0.001;  // of Adam
  int64_t meta_batch = 4;
  uint64_t seed = 0;
  // Where it is looked at: after this many iterations, or after this many seconds of learning where
  // `iterations` is empty.
  std::vector<int64_t> iterations = {};
  std::vector<double> seconds = {};
  int64_t train_tasks = 0, valid_tasks = 0, test_tasks = 0;  // at every point
  std::function<void(const meta::LearnState& state)> look = {};
};

struct FewShotCurve {
  std::string label;
  std::vector<FewShotPoint> points;
  meta::LearnState state;  // at the end
  std::string failure;     // why it ended early: it left the finite numbers
  double seconds_per_iteration() const;
  const FewShotPoint& last() const { return points.back(); }
};
// A run that leaves the finite numbers is a result, too: its curve ends there. Throws std::runtime_error only
// where it does so before the first point.
FewShotCurve run_few_shot(const FewShotGround& ground, const FewShotRun& run,
                          const ReproduceOptions& options);

std::string score_text(const meta::TaskScore& score);  // "93.1 +- 0.8", of accuracy; "-" of no task

}  // namespace bilevel::reproduce
