#pragma once
// Learning across tasks: iterations of one hypergradient on a meta-batch and one outer step, with the
// accuracy on tasks of validation classes along the way, and on many tasks of test classes at the end, there
// with the x that was best on the validation tasks: the last one may have been overfitted, or diverged. The
// state is plain data that can be saved after any iteration; tasks come by number, so that what comes next
// follows from it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/outer.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/tasks.h"

namespace bilevel {
class ProcessGroup;
}

namespace bilevel::meta {

struct LearnOptions {
  int64_t iterations = 200;
  int64_t meta_batch = 4;  // tasks of an iteration
  OuterOptions outer = {.optimizer = "adam", .rate = 0.001};
  int64_t records = 10;        // about how often the validation tasks are looked at; the start and end always
  int64_t valid_tasks = 40;    // always the same ones
  int64_t test_tasks = 120;    // K-RMD's number
  int64_t tasks_at_once = 20;  // of an evaluation: bounds its memory
  uint64_t seed = 0;           // of x; the tasks' is the source's
  void validate() const;
};

// How well tasks are learned: the mean over tasks, and half the width of its 95 % interval.
struct TaskScore {
  double accuracy = 0, accuracy_interval = 0;  // percent; NaN in regression
  double loss = 0, loss_interval = 0;          // mean of the task losses
  int64_t tasks = 0;
};

struct LearnRecord {
  int64_t iteration = 0;      // done
  double outer_loss = 0;      // mean over the meta-batches since the last record; NaN at the start
  double direction_norm = 0;  // of the last hypergradient; NaN at the start
  TaskScore valid;
  OracleCounts counts;
  double seconds = 0;  // of the iterations, without evaluations
};

struct LearnState {
  AlgorithmState algorithm;  // iteration, x and the outer optimiser's state
  double loss_sum = 0;       // since the last record
  int64_t loss_count = 0;
  double direction_norm = 0;
  std::vector<LearnRecord> history;
  Tensor best_x;               // of the best record so far, by its validation tasks; not defined before one
  int64_t best_iteration = 0;  // of that
  TaskScore best_valid;
  StatusCounts statuses;  // how often the linear solve, or the formula, ended in which way
  OracleCounts counts;
  int64_t bytes_kept = 0;  // largest, beside x: inner iterates and directions
  double seconds = 0;
};

struct LearnHooks {
  std::function<void(const LearnState&)> step;     // after every iteration
  std::function<void(const LearnRecord&)> record;  // after every look at the validation tasks
  std::function<void(int64_t done)> test;          // test tasks so far
  // After an iteration when save_seconds have passed since the last time, after every record, and where it is
  // interrupted.
  std::function<void(const LearnState&)> save = {};
  double save_seconds = 10;
  std::function<bool()> interrupted = {};  // asked after every step
};

enum class LearnEnd { not_run, iterations_done, interrupted, failed };
std::string_view name_of(LearnEnd end);

struct LearnSummary {
  LearnEnd end = LearnEnd::not_run;
  std::string reason;  // of a failure: most linear solves failed
  LearnState state;
  TaskScore test;  // of the best record's x; of no task where it was interrupted or failed
};

LearnState begin_learning(const Learner& learner, const LearnOptions& options);
// Throws NotFiniteError where x or a task's w leaves the finite numbers; what was saved last is good.
// With a group its ranks deal the tasks out among them, and all end with the same bits.
LearnSummary learn(const Learner& learner, const TaskSource& source, const LearnOptions& options,
                   LearnState state, const LearnHooks& hooks = {}, ProcessGroup* group = nullptr);

// Tasks 0 .. count-1 of the part.
TaskScore score_tasks(const Learner& learner, const TaskSource& source, const Tensor& x, Part part,
                      int64_t count, int64_t at_once, int64_t iteration,
                      const std::function<void(int64_t done)>& progress = {}, ProcessGroup* group = nullptr);

}  // namespace bilevel::meta
