#include "bilevel/nas/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/require.h"
#include "bilevel/core/schedule.h"
#include "bilevel/fields/option_text.h"

namespace bilevel::nas {
namespace {

constexpr int64_t gentle_epochs = 5;
constexpr double largest = std::numeric_limits<float>::max();  // LibTorch refuses others beside float tensors

// Both in whole epochs, as published: (E - 5 - e) / (E - 5), then (E - e) / (5 (E - 5)).
double gentle_factor(int64_t epoch, int64_t epochs) {
  const auto steep = static_cast<double>(epochs - gentle_epochs);
  const auto left = static_cast<double>(epochs - epoch);
  if (epochs - epoch > gentle_epochs) return (left - gentle_epochs) / steep;
  return left / (steep * gentle_epochs);
}

}  // namespace

const std::vector<std::string>& train_schedule_names() {
  static const std::vector<std::string> names = {"cosine", "linear", "linear-gentle", "constant"};
  return names;
}

void TrainOptions::validate(int64_t images) const {
  require(epochs >= 1, "epochs", epochs, "at least 1");
  require(batch >= 2, "batch", batch, "at least 2, because a norm needs two images");
  if (images < batch) {
    throw OptionError(
        fmt::format("{}: there are only {} training images; give more images or a smaller batch",
                    named("batch", fmt::to_string(batch)), images));
  }
  require(rate > 0 && rate <= largest, "rate", rate, "above 0 and at most 3.4e+38, the largest float");
  const std::vector<std::string>& names = train_schedule_names();
  if (std::find(names.begin(), names.end(), schedule) == names.end()) {
    refuse_unknown("schedule", schedule, names);
  }
  if (schedule == "linear-gentle" && epochs <= gentle_epochs) {
    throw OptionError(fmt::format("{}: its last {} epochs are the gentle ones, so that {} must be above that",
                                  named("schedule", "linear-gentle"), gentle_epochs,
                                  named("epochs", fmt::to_string(epochs))));
  }
  require(warmup_epochs >= 0 && warmup_epochs < static_cast<double>(epochs), "warmup", warmup_epochs,
          "at least 0 and below the number of epochs");
  require_below_one("momentum", momentum);
  if (nesterov && momentum == 0) throw OptionError(named("nesterov") + ": needs a momentum above 0");
  require(weight_decay >= 0 && weight_decay <= largest, "weight_decay", weight_decay,
          "at least 0 and at most 3.4e+38, the largest float");
  require(clip >= 0 && std::isfinite(clip), "clip", clip, "finite and at least 0; 0 is no clipping");
  require_below_one("drop_path", drop_path);
  require_nonnegative("auxiliary", auxiliary);
  require_below_one("label_smoothing", label_smoothing);
  require(test_batch >= 1, "test_batch", test_batch, "at least 1");
  augment.validate();
}

double TrainOptions::rate_at(int64_t step, int64_t steps_per_epoch) const {
  double factor = 1;
  if (schedule == "linear-gentle") {
    factor = gentle_factor(step / steps_per_epoch, epochs);
  } else {
    const Schedule falling{.kind = parse_schedule_kind(schedule), .total_steps = epochs * steps_per_epoch};
    factor = falling.factor(step);
  }
  const double warmup = warmup_epochs * static_cast<double>(steps_per_epoch);
  return rate * factor * (warmup > 0 ? std::min(1.0, static_cast<double>(step + 1) / warmup) : 1);
}

double TrainOptions::drop_path_at(int64_t epoch) const {
  return drop_path * static_cast<double>(epoch) / static_cast<double>(epochs);
}

TrainOptions default_train_options(SpaceKind kind, bool imagenet) {
  TrainOptions o;
  switch (kind) {
    case SpaceKind::nasbench201:
      o.nesterov = true;
      return o;
    case SpaceKind::nasbench1shot1:
      o.epochs = 108;
      o.rate = 0.2;
      o.weight_decay = 1e-4;
      return o;
    case SpaceKind::darts:
      break;
  }
  o.epochs = imagenet ? 250 : 600;
  o.batch = imagenet ? 128 : 96;
  o.rate = imagenet ? 0.1 : 0.025;
  o.schedule = imagenet ? "linear-gentle" : "cosine";
  o.weight_decay = imagenet ? 3e-5 : 3e-4;
  o.clip = 5;
  o.drop_path = imagenet ? 0 : 0.2;
  o.auxiliary = 0.4;
  o.label_smoothing = imagenet ? 0.1 : 0;
  o.augment.cutout = imagenet ? 0 : 16;
  return o;
}

}  // namespace bilevel::nas
