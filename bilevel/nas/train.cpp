#include "bilevel/nas/train.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/algorithms/resumable.h"
#include "bilevel/core/errors.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/distributed/rank_slice.h"
#include "bilevel/nas/tape/taped_network.h"
#include "bilevel/nas/training_pass.h"
#include "bilevel/run/not_finite.h"

namespace bilevel::nas {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void require_fit(const DeviceImages& set, const NetworkOptions& network, const char* which) {
  const auto& images = set.images;
  if (images.size(0) < 1) throw std::invalid_argument(fmt::format("the {} set is empty", which));
  if (images.size(1) != network.input_channels || images.size(2) != network.height ||
      images.size(3) != network.width) {
    throw OptionError(
        fmt::format("the {} images are {} channels of {} x {}, but the network takes {} channels of {} x {}: "
                    "build it for these images, or rescale them ({})",
                    which, images.size(1), images.size(2), images.size(3), network.input_channels,
                    network.height, network.width, named("image_size")));
  }
  const auto smallest = set.labels.min().item<int64_t>(), largest = set.labels.max().item<int64_t>();
  if (smallest < 0 || largest >= network.classes) {
    throw std::invalid_argument(
        fmt::format("the {} labels go from {} to {}, but the network has the classes 0 to {}", which,
                    smallest, largest, network.classes - 1));
  }
}

std::unique_ptr<const InnerOptimizer> make_optimizer(const TrainOptions& o) {
  InnerOptions inner;
  inner.optimizer = o.momentum == 0 ? "gd" : o.nesterov ? "nesterov" : "heavy-ball";
  inner.momentum = o.momentum;
  inner.rate = o.rate;
  inner.clip_norm = o.clip;
  return make_inner_optimizer(inner);
}

BatchStream make_stream(const TrainOptions& options, int64_t images) {
  options.validate(images);  // before the stream speaks of batches in its own words
  return {options.seed, "train", images, {.size = options.batch, .drop_last = true}};
}

// As in training_pass.cpp.
Tensor laid_out(const Tensor& images) { return images.contiguous(at::MemoryFormat::ChannelsLast); }

TrainingLoss loss_of(const TrainOptions& options) { return {options.label_smoothing, options.auxiliary}; }

}  // namespace

Training::Training(const Network& network, DeviceImages train, DeviceImages test, TrainOptions options,
                   BatchRanks ranks)
    : network_(network),
      train_(std::move(train)),
      test_(std::move(test)),
      options_(std::move(options)),
      ranks_(std::move(ranks)),
      stream_(make_stream(options_, train_.size())),
      optimizer_(make_optimizer(options_)) {
  require_fit(train_, network.options(), "training");
  require_fit(test_, network.options(), "test");
  if (ranks_.group && options_.batch < ranks_.group->size()) {
    throw OptionError(fmt::format("{}: {} ranks need an image each; give a larger batch or fewer ranks",
                                  named("batch", fmt::to_string(options_.batch)), ranks_.group->size()));
  }
  if (options_.auxiliary > 0 && !network.options().auxiliary) {
    throw OptionError(
        fmt::format("{}: this network has no second head, which only the DARTS space has; leave it out",
                    named("auxiliary", fmt::to_string(options_.auxiliary))));
  }
  const at::TensorOptions tensors = train_.normalization.table.options();
  if (!ranks_.several()) {
    pass_ = std::make_unique<const TrainingPass>(network_, loss_of(options_), options_.batch, tensors);
  } else if (tensors.device().is_cpu()) {  // without graphs, automatic differentiation has fewer kernels
    const RankSlice own = slice_of(stream_.at(0), train_.size(), ranks_.group->rank(), ranks_.group->size());
    taped_ = tape_for(network_, loss_of(options_), options_.batch, ranks_.norms ? options_.batch : own.count,
                      tensors);
  }
}

Training::Training(Training&&) noexcept = default;
Training::~Training() = default;

bool Training::taped() const { return pass_ ? pass_->taped() : taped_ != nullptr; }

TrainState Training::start() const {
  const at::TensorOptions tensors = train_.normalization.table.options();
  TrainState state;
  state.inner = optimizer_->start(network_.plan().initial_weights(options_.seed, tensors));
  state.statistics = network_.plan().initial_statistics(tensors);
  return state;
}

Training::StepValues Training::step(TrainState& state) const {
  const Batch batch = stream_.at(state.inner.step);
  TrainingValues values = ranks_.several() ? values_of_ranks(state, batch) : values_of(state, batch);
  const at::AutoGradMode no_gradient(false);
  Tensor slope = values.gradient;
  if (options_.weight_decay > 0) slope = at::add(slope, state.inner.w, options_.weight_decay);
  const double rate = options_.rate_at(state.inner.step, steps_per_epoch());
  state.inner = optimizer_->step(state.inner, slope, {.value = rate, .learned = {}});
  state.statistics = values.statistics;
  return {values.loss, values.correct};
}

// Of the whole batch; undefined where no edge is ever dropped.
Tensor Training::kept(const TrainState& state, const Batch& batch) const {
  if (options_.drop_path == 0) return {};
  return draw_kept(network_.plan(), batch.size(train_.size()), options_.drop_path_at(state.epoch()),
                   batch.seed, train_.normalization.table.options());
}

TrainingValues Training::values_of(const TrainState& state, const Batch& batch) const {
  const LabelledImages images{train_.batch(batch.index, options_.augment, batch.seed),
                              train_.batch_labels(batch.index)};
  return (*pass_)(state.inner.w, state.statistics, images, kept(state, batch));
}

// What a rank's images add.
TrainingValues Training::own_values(const TrainState& state, const Batch& batch, const RankSlice& own) const {
  const LabelledImages images{
      laid_out(train_.part(batch.index, own.begin, own.count, options_.augment, batch.seed)),
      train_.batch_labels(own.batch.index)};
  if (taped_) {
    const BatchShare share{.all_images = options_.batch, .norms = ranks_.norms.get()};
    const TapedNetwork::Pass pass = (*taped_)(state.inner.w, state.statistics, images, share);
    return {pass.loss, correct_count(pass.logits, images.labels), pass.gradient, pass.statistics};
  }
  PassOptions pass{.norm = Norm::remember, .statistics = state.statistics.clone()};
  pass.norms = ranks_.norms;
  if (const Tensor all = kept(state, batch); all.defined()) pass.kept = all.narrow(1, own.begin, own.count);
  TrainingLoss loss = loss_of(options_);
  loss.share = own.weight;
  return differentiate(network_, loss, state.inner.w, images, pass);
}

// Sums over the ranks in one call. Where each rank has norms of its own, what they remember is their mean.
TrainingValues Training::values_of_ranks(const TrainState& state, const Batch& batch) const {
  const RankSlice own = slice_of(batch, train_.size(), ranks_.group->rank(), ranks_.group->size());
  TrainingValues values = own_values(state, batch, own);
  const at::AutoGradMode no_gradient(false);
  values.correct = values.correct.to(values.gradient.scalar_type());
  std::vector<Tensor*> sums = {&values.gradient, &values.loss, &values.correct};
  if (!ranks_.norms) {
    values.statistics = values.statistics * own.weight;
    sums.push_back(&values.statistics);
  }
  ranks_.group->sum_(sums);
  values.correct = values.correct.to(at::kLong);
  return values;
}

// Adds the steps' values one by one: when they are read must not change a bit of the sum.
void Training::read(TrainState& state, std::vector<StepValues>& pending) const {
  const int64_t first = state.inner.step - static_cast<int64_t>(pending.size());
  std::vector<Tensor> losses, counts;
  for (const StepValues& values : pending) {
    losses.push_back(values.loss);
    counts.push_back(values.correct);
  }
  pending.clear();
  if (losses.empty()) return;
  const Tensor loss = at::stack(losses).to(at::kCPU, at::kDouble);
  state.correct += at::stack(counts).sum().item<int64_t>();
  for (int64_t i = 0; i < loss.numel(); ++i) {
    const double value = loss.data_ptr<double>()[i];
    state.loss_sum += value;
    if (std::isfinite(value)) continue;
    throw NotFiniteRun(fmt::format(
        "the training loss is {} in epoch {}, step {} of {}, at rate {:g}: lower {}, warm up with {}, or "
        "clip "
        "the gradient with {}",
        value, state.epoch() + 1, (first + i) % steps_per_epoch() + 1, steps_per_epoch(),
        options_.rate_at(first + i, steps_per_epoch()), named("rate"), named("warmup"), named("clip", "5")));
  }
}

double Training::test_accuracy(const Tensor& w, const Tensor& statistics) const {
  const at::AutoGradMode no_gradient(false);
  const PassOptions pass{.norm = Norm::remembered, .statistics = statistics};
  Tensor correct = at::zeros({}, test_.labels.options()), wrong = correct;  // images; outputs
  const int64_t first = ranks_.group ? ranks_.group->rank() : 0,
                ranks = ranks_.group ? ranks_.group->size() : 1;
  for (int64_t begin = first * options_.test_batch; begin < test_.size();
       begin += ranks * options_.test_batch) {
    const Tensor index = at::arange(begin, std::min(begin + options_.test_batch, test_.size()), at::kLong);
    const Tensor logits = network_.forward(w, laid_out(test_.plain(index)), pass).logits;
    correct = correct + correct_count(logits, test_.batch_labels(index));
    wrong = wrong + logits.isfinite().logical_not().sum();
  }
  Tensor counts = at::stack({correct, wrong});
  if (ranks_.group) ranks_.group->sum_(counts);
  counts = counts.cpu();  // the device's queue is waited for once
  if (const auto count = counts[1].item<int64_t>(); count > 0) {
    throw NotFiniteError(fmt::format("{} outputs of the network on the test images are not finite", count));
  }
  return 100 * static_cast<double>(counts[0].item<int64_t>()) / static_cast<double>(test_.size());
}

bool Training::run(TrainState& state, const TrainHooks& hooks) const {
  const int64_t steps = steps_per_epoch();
  auto shown = Clock::now();
  Resumable<TrainHooks> loop(hooks);
  while (state.epoch() < options_.epochs) {
    const auto begin = Clock::now();
    const double before = state.seconds;
    std::vector<StepValues> pending;
    while (state.inner.step < (state.epoch() + 1) * steps) {
      pending.push_back(step(state));
      const bool ends = state.inner.step == (state.epoch() + 1) * steps;
      const bool stops = loop.interrupted();
      const bool saves = loop.save_due();
      if (ends || stops || saves || seconds_since(shown) >= 1) {
        read(state, pending);
        shown = Clock::now();
        const int64_t done = state.inner.step - state.epoch() * steps;
        if (hooks.progress) {
          hooks.progress(
              {state.epoch() + 1, options_.epochs, done, steps, state.loss_sum / static_cast<double>(done)});
        }
      }
      state.seconds = before + seconds_since(begin);
      if (saves || stops) loop.save(state);
      if (stops) return false;
    }
    TrainEpoch record;
    record.epoch = state.epoch() + 1;
    record.train_loss = state.loss_sum / static_cast<double>(steps);
    record.train_accuracy =
        100 * static_cast<double>(state.correct) / static_cast<double>(steps * options_.batch);
    record.rate = options_.rate_at(state.inner.step - 1, steps);
    try {
      record.test_accuracy = test_accuracy(state.inner.w, state.statistics);
    } catch (const NotFiniteError& error) {
      throw NotFiniteRun(fmt::format("after epoch {}, whose last rate was {:g}: {}; lower {}", record.epoch,
                                     record.rate, marked_message(error), named("rate")));
    }
    record.seconds = before + seconds_since(begin);
    state.history.push_back(record);
    state.loss_sum = state.seconds = 0;
    state.correct = 0;
    if (hooks.epoch_ended) hooks.epoch_ended(state);
    if (loop.save_due()) loop.save(state);
  }
  loop.save(state);
  return true;
}

}  // namespace bilevel::nas
