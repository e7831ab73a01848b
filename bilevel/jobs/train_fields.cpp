// The field table of `train`.

#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/jobs/train.h"

namespace bilevel {
namespace {

using TrainJob = TrainJobOptions;

constexpr const char* recipe_heading = "training recipe (default: the one published for the space)";

void add_cell_fields(Fields<TrainJob>& f) {
  f.heading("what to train");
  f.add(
       "space", [](auto& o) -> auto& { return o.space; }, "search space of the cell")
      .first();
  f.add(
       "arch", [](auto& o) -> auto& { return o.genotype; }, "the cell, as text or JSON")
      .first();
  f.add(
       "genotype", [](auto& o) -> auto& { return o.genotype_file; },
       "file that holds the cell, such as the genotype.json of a search")
      .first();
  f.add(
       "channels", [](auto& o) -> auto& { return o.channels; },
       "channels of the first stage; 0 = the space's default")
      .in(at_least(0, bounds::width))
      .first();
  f.add(
       "cells", [](auto& o) -> auto& { return o.cells; },
       "number of cells: for each stage in nasbench201, in total in the others; 0 = the space's default")
      .in(at_least(0, bounds::depth))
      .first();
  f.add(
      "imagenet", [](auto& o) -> auto& { return o.imagenet; },
      "darts: use the network and the recipe for ImageNet");
}

void add_recipe_fields(Fields<TrainJob>& f) {
  f.heading(recipe_heading);
  f.add(
       "epochs", [](auto& o) -> auto& { return o.train.epochs; },
       "number of epochs: 200, darts 600, nasbench1shot1 108")
      .in(at_least(1, bounds::endless))
      .by_rule()
      .first();
  f.add(
       "batch", [](auto& o) -> auto& { return o.train.batch; }, "images in a batch: 256, darts 96")
      .in(at_least(2, bounds::examples))
      .by_rule()
      .first();
  f.add(
       "rate", [](auto& o) -> auto& { return o.train.rate; },
       "rate at the start: 0.1, darts 0.025, nasbench1shot1 0.2")
      .in(above(0, bounds::largest_float))
      .by_rule()
      .first();
  f.add(
       "schedule", [](auto& o) -> auto& { return o.train.schedule; },
       "how the rate falls: cosine, linear, linear-gentle or constant")
      .by_rule();
  f.add(
       "warmup", [](auto& o) -> auto& { return o.train.warmup_epochs; },
       "epochs at the start over which the rate rises")
      .in(at_least(0))
      .by_rule();
  f.add(
       "momentum", [](auto& o) -> auto& { return o.train.momentum; },
       "momentum of the steps; 0 = plain gradient descent")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "nesterov", [](auto& o) -> auto& { return o.train.nesterov; },
       "use Nesterov's form of the momentum, as nasbench201's recipe does")
      .by_rule();
  f.add(
       "weight_decay", [](auto& o) -> auto& { return o.train.weight_decay; },
       "weight decay, added to the gradient")
      .in(at_least(0, bounds::largest_float))
      .by_rule();
  f.add(
       "clip", [](auto& o) -> auto& { return o.train.clip; },
       "clip the gradient to this norm; 0 = no clipping; darts 5")
      .in(at_least(0))
      .by_rule();
  f.include(
      [](TrainJob & o) -> auto& { return o.train.augment; }, augment_fields());
  for (const char* field : {"crop_padding", "flip", "cutout"}) f.row(field).group = recipe_heading;
  f.row("crop_padding").by_rule();
  f.row("cutout").by_rule().help = "side of the square that is blanked in each image; darts 16; 0 = none";
  f.add(
       "drop_path", [](auto& o) -> auto& { return o.train.drop_path; },
       "darts: probability of dropping a path in the last epoch, 0.2")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "auxiliary", [](auto& o) -> auto& { return o.train.auxiliary; },
       "darts: weight of the second head's loss, 0.4; 0 = none")
      .in(at_least(0))
      .by_rule();
  f.add(
       "label_smoothing", [](auto& o) -> auto& { return o.train.label_smoothing; },
       "share of each label that is spread over all classes")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "seed", [](auto& o) -> auto& { return o.train.seed; },
       "random seed for the starting weights, the batches, the augmentation and the part of the set")
      .by_rule()
      .first();
}

}  // namespace

TrainJobOptions::TrainJobOptions() { compute.dtype = "float"; }

const Fields<TrainJobOptions>& TrainJobOptions::fields() {
  static const Fields<TrainJob> table = [] {
    Fields<TrainJob> f;
    add_cell_fields(f);
    f.include(
        [](TrainJob & o) -> auto& { return o.data; }, image_fields());
    f.heading("images");
    f.add(
         "train_size", [](auto& o) -> auto& { return o.train_size; },
         "number of training images, class-balanced; 0 = all")
        .in(at_least(0, bounds::examples));
    add_recipe_fields(f);
    add_batch_norm_field(f);
    f.include(
        [](TrainJob & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

}  // namespace bilevel
