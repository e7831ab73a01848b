// The field table of `learn`.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bilevel/core/outer.h"
#include "bilevel/jobs/learn.h"

namespace bilevel {
namespace {

using LearnJob = LearnJobOptions;

void add_task_fields(Fields<LearnJob>& f) {
  f.heading("tasks");
  f.add(
       "data", [](auto& o) -> auto& { return o.data.data; },
       fmt::format("{}; or a folder with a folder of PNG or JPEG files for each class, perhaps below train, "
                   "val and test; or a table, whose classes are split into parts",
                   fmt::join(meta::task_data_names(), ", ")))
      .is(FieldKind::place)
      .first();
  f.add(
       "data_dir", [](auto& o) -> auto& { return o.data.folder; },
       "folder of the named data sets, fetched or unpacked")
      .is(FieldKind::place)
      .from_environment("BILEVEL_DATA");
  f.add(
       "labels", [](auto& o) -> auto& { return o.data.labels; },
       "file of labels, for a table without labels inside (NPY, IDX)")
      .is(FieldKind::place);
  f.add(
      "label_column", [](auto& o) -> auto& { return o.data.label_column; },
      "label column of a table: first, last, a name in its header, or a position from 0");
  f.add(
       "image_size", [](auto& o) -> auto& { return o.data.image_size; },
       "rescale images to this height and width; 0 = keep the data's")
      .in(at_least(0, bounds::side));
  f.add(
       "ways", [](auto& o) -> auto& { return o.data.shape.ways; }, "N: classes in a task (5)")
      .in(at_least(2, 10000))
      .by_rule()
      .first();
  f.add(
       "shots", [](auto& o) -> auto& { return o.data.shape.shots; },
       "k: training examples for each class (1; fc100, folders and tables 5; sinusoids 10)")
      .in(at_least(1, 10000))
      .by_rule()
      .first();
  f.add(
       "queries", [](auto& o) -> auto& { return o.data.shape.queries; },
       "validation examples for each class (15)")
      .in(at_least(1, 10000))
      .by_rule();
}

void add_learner_fields(Fields<LearnJob>& f) {
  f.heading("learner; defaults depend on the data and the learner");
  f.add(
       "learner", [](auto& o) -> auto& { return o.learner.name; },
       fmt::format("learner: {}", fmt::join(meta::learner_names(), ", ")))
      .one_of(meta::learner_names())
      .first();
  f.add(
       "network", [](auto& o) -> auto& { return o.network.name; }, "network: omniglot, conv4 or mlp")
      .by_rule();
  f.add(
       "filters", [](auto& o) -> auto& { return o.network.filters; },
       "filters in each convolution, or units in mlp's dense layers")
      .in(at_least(1, bounds::side))
      .by_rule();
  f.add(
       "inner_steps", [](auto& o) -> auto& { return o.learner.inner_steps; },
       "T: inner steps that learn a task")
      .in(at_least(0, bounds::within_step))
      .by_rule()
      .first();
  f.add(
       "growth", [](auto& o) -> auto& { return o.learner.growth; },
       "c: T grows as c (k+1)^(1/4) with the iterations (AID-BiO increasing); 0 = T as given")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "inner_rate", [](auto& o) -> auto& { return o.learner.inner_rate; },
       "rate of the inner steps; hyper-representation starts from it and learns it")
      .in(above(0))
      .by_rule()
      .first();
  f.add(
       "terms", [](auto& o) -> auto& { return o.learner.terms; },
       "largest number of CG steps in aid and imaml")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "tolerance", [](auto& o) -> auto& { return o.learner.tolerance; },
       "relative residual at which a task's CG stops; 0 = always take all steps")
      .in(at_least(0))
      .by_rule();
  f.add(
       "curvature", [](auto& o) -> auto& { return o.learner.curvature; },
       "curvature matrix of CG: hessian, or gauss-newton (imaml)")
      .one_of({"hessian", "gauss-newton"})
      .by_rule();
  f.add(
       "truncate", [](auto& o) -> auto& { return o.learner.truncate; },
       "K: back-propagate through the last K steps, in itd and hyper-representation; 0 = all")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "ridge", [](auto& o) -> auto& { return o.learner.ridge; }, "ridge penalty on the heads of aid and itd")
      .in(at_least(0))
      .by_rule();
  f.add(
       "proximal", [](auto& o) -> auto& { return o.learner.proximal; },
       "lambda of imaml's lambda/2 |w - x|^2")
      .in(above(0))
      .by_rule();
  f.add(
       "centre_weight", [](auto& o) -> auto& { return o.learner.centre_weight; },
       "starting value of hyper-representation's rho")
      .in(above(0))
      .by_rule();
}

void add_learning_fields(Fields<LearnJob>& f) {
  f.heading("learning");
  f.add(
       "iterations", [](auto& o) -> auto& { return o.learn.iterations; }, "number of outer steps")
      .in(at_least(0, bounds::endless))
      .by_rule()
      .first();
  f.add(
       "meta_batch", [](auto& o) -> auto& { return o.learn.meta_batch; }, "tasks in each iteration")
      .in(at_least(1, bounds::width))
      .by_rule()
      .first();
  f.add(
       "outer", [](auto& o) -> auto& { return o.learn.outer.optimizer; }, "outer optimiser: adam or sgd")
      .one_of(outer_optimizer_names())
      .by_rule();
  f.add(
       "outer_rate", [](auto& o) -> auto& { return o.learn.outer.rate; }, "rate of the outer steps")
      .in(above(0))
      .by_rule();
  f.add(
       "records", [](auto& o) -> auto& { return o.learn.records; },
       "about how many times to measure on the validation tasks")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "valid_tasks", [](auto& o) -> auto& { return o.learn.valid_tasks; },
       "number of validation tasks, the same ones every time")
      .in(at_least(1, bounds::endless))
      .by_rule();
  f.add(
       "test_tasks", [](auto& o) -> auto& { return o.learn.test_tasks; },
       "M: number of tasks of test classes at the end")
      .in(at_least(1, bounds::endless))
      .by_rule();
  f.add(
       "seed", [](auto& o) -> auto& { return o.data.seed; },
       "random seed for the tasks, the start of x and omniglot's parts")
      .first();
}

}  // namespace

LearnJobOptions::LearnJobOptions() { compute.dtype = "float"; }

const Fields<LearnJobOptions>& LearnJobOptions::fields() {
  static const Fields<LearnJob> table = [] {
    Fields<LearnJob> f;
    add_task_fields(f);
    add_learner_fields(f);
    add_learning_fields(f);
    f.include(
        [](LearnJob & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

}  // namespace bilevel
