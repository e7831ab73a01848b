#pragma once
// How a derived network is trained from scratch, with the published recipe of each search space as default.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/augment.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct TrainOptions {
  int64_t epochs = 200;
  int64_t batch = 256;  // an epoch's last images that do not fill one are left to the next epoch's shuffle
  double rate = 0.1;
  // cosine and linear fall to 0 step by step. linear-gentle is the ImageNet recipe's: linear by epochs to the
  // last five, which fall five times as slowly.
  std::string schedule = "cosine";
  double warmup_epochs = 0;  // the rate rises linearly over them
  double momentum = 0.9;     // 0 = plain gradient descent
  bool nesterov = false;
  double weight_decay = 5e-4;  // added to the gradient, all weights alike
  double clip = 0;             // largest norm of the gradient with its decay; 0 = no clipping
  double drop_path = 0;        // in the last epoch; grows linearly from 0, epoch by epoch (DARTS space)
  double auxiliary = 0;        // weight of the second head's loss (DARTS space); 0 = there is none
  double label_smoothing = 0;
  AugmentOptions augment = {};
  uint64_t seed = 0;         // of the start, the batches, the augmentation and drop path
  int64_t test_batch = 500;  // no influence on the result

  // Throws std::invalid_argument naming the option, its value and the bound. `images`: of the training set.
  void validate(int64_t images) const;
  double rate_at(int64_t step, int64_t steps_per_epoch) const;
  double drop_path_at(int64_t epoch) const;
};

const std::vector<std::string>& train_schedule_names();

// NAS-Bench-201: 200 epochs, batches of 256, Nesterov 0.1 cosine, decay 5e-4, flip and crop.
// NAS-Bench-1Shot1: NAS-Bench-101's 108 epochs, batches of 256, rate 0.2 cosine, decay 1e-4. The original
// trained by RMSProp, which is not here: momentum takes its place and accuracies differ a little.
// DARTS: 600 epochs, batches of 96, 0.025 cosine, decay 3e-4, clip 5, cutout 16, drop path 0.2, second head
// 0.4; on ImageNet 250 epochs, batches of 128, 0.1 linear-gentle, decay 3e-5, label smoothing 0.1, clip 5.
TrainOptions default_train_options(SpaceKind kind, bool imagenet = false);

}  // namespace bilevel::nas
