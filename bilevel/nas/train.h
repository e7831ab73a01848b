#pragma once
// Training of one derived network from scratch: what is left to do with a genotype once a search has found
// it. No bilevel problem: one gradient in each step, by the network's tape if it has one (training_pass.h),
// else by automatic differentiation.
//
// All random numbers come from the seed and the step's number, and a state holds everything else, so that a
// stopped run can be resumed to the same bits.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bilevel/core/batch.h"
#include "bilevel/core/inner.h"
#include "bilevel/data/augment.h"
#include "bilevel/distributed/rank_slice.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/train_options.h"

namespace bilevel::nas {

class TapedNetwork;
class TrainingPass;
struct TrainingValues;

struct TrainEpoch {
  int64_t epoch = 0;          // from 1
  double train_loss = 0;      // mean over the epoch's batches, as trained: augmented, smoothed, both heads
  double train_accuracy = 0;  // of the same, in percent
  double test_accuracy = 0;   // after the epoch, in percent
  double rate = 0;            // of the epoch's last step
  double seconds = 0;         // with its test
};

struct TrainState {
  InnerState inner;     // weights, momentum, steps taken
  Tensor statistics;    // running mean and variance of every norm
  double loss_sum = 0;  // of the steps of the epoch under way
  int64_t correct = 0;  // images
  double seconds = 0;   // of the epoch under way
  std::vector<TrainEpoch> history;

  int64_t epoch() const { return static_cast<int64_t>(history.size()); }  // finished ones
};

struct TrainProgress {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t step = 0, steps = 0;    // of the epoch
  double loss = 0;                // mean of the epoch so far
};

struct TrainHooks {
  std::function<void(const TrainProgress&)> progress = {};  // about once a second
  std::function<void(const TrainState&)> epoch_ended = {};  // with its record
  // After a step when save_seconds have passed since the last time, after an epoch likewise, and at every
  // end.
  std::function<void(const TrainState&)> save = {};
  double save_seconds = 10;
  std::function<bool()> interrupted = {};  // asked after every step
};

// On a GPU one Training is for one thread at a time: its graph has one place for what a step reads.
class Training {
 public:
  // Throws std::invalid_argument where the images do not fit the network, or the options neither. The network
  // must outlive this object; the sets lie where the training is to run, in its dtype.
  // Ranks, where there are some, divide every batch and end with the same bits.
  Training(const Network& network, DeviceImages train, DeviceImages test, TrainOptions options,
           BatchRanks ranks = {});
  Training(Training&&) noexcept;
  ~Training();

  TrainState start() const;
  // From any state to the end, or to where `stop` says true; whether it is the end. Throws NotFiniteError
  // naming epoch and step, or the epoch whose test failed.
  bool run(TrainState& state, const TrainHooks& hooks = {}) const;
  // In percent. Throws NotFiniteError where an output is not finite: its images would count as wrong ones.
  double test_accuracy(const Tensor& w, const Tensor& statistics) const;

  const Network& network() const { return network_; }
  const TrainOptions& options() const { return options_; }
  int64_t steps_per_epoch() const { return stream_.batches_per_epoch(); }
  bool taped() const;

 private:
  // Of one step, on the device: reading them there and then would stop the queue.
  struct StepValues {
    Tensor loss, correct;
  };
  StepValues step(TrainState& state) const;
  TrainingValues values_of(const TrainState& state, const Batch& batch) const;
  TrainingValues values_of_ranks(const TrainState& state, const Batch& batch) const;
  TrainingValues own_values(const TrainState& state, const Batch& batch, const RankSlice& own) const;
  Tensor kept(const TrainState& state, const Batch& batch) const;
  void read(TrainState& state, std::vector<StepValues>& pending) const;

  const Network& network_;
  DeviceImages train_, test_;
  TrainOptions options_;
  BatchRanks ranks_;
  BatchStream stream_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
  std::unique_ptr<const TrainingPass> pass_;   // null where ranks divide the batches
  std::shared_ptr<const TapedNetwork> taped_;  // theirs; null where there is none
};

}  // namespace bilevel::nas
