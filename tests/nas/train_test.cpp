// Training from scratch: it learns, its step is the published one, and a stopped run goes on to the same
// bits.
#include "bilevel/nas/train.h"

#include <gmock/gmock.h>

#include <limits>

#include "bilevel/core/errors.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/train_checkpoint.h"
#include "tests/data/files.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::floats;
using test::message;
using test::relative_error;
using test::TemporaryFolder;
using ::testing::HasSubstr;

constexpr const char* cell201 =
    "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_1x1~2|";

DeviceImages bytes_of_images(int64_t samples, uint64_t seed, const at::TensorOptions& tensors,
                             int64_t classes = 10) {
  SyntheticImages drawn{.samples = samples, .noise = 0.7, .seed = seed};
  drawn.classes = classes;
  const LabelledImages images = draw_images(drawn, doubles());
  const Tensor bytes = images.images.mul(40).add(128).round().clamp(0, 255).to(at::kByte);
  return {bytes, images.labels, {128, 128, 128}, {50, 50, 50}, tensors};
}

struct TrainCase {
  const char* space;
  const char* genotype;
};

Network small_network(const TrainCase& c, bool auxiliary = false) {
  const SearchSpace space = make_space(c.space);
  NetworkOptions options{.channels = 8, .cells = space.kind == SpaceKind::nasbench201 ? 1 : 3};
  options.height = options.width = 8;
  options.auxiliary = auxiliary;
  return {space, parse_genotype(space, c.genotype), options};
}

TrainOptions short_run(int64_t epochs) {
  TrainOptions o;
  o.epochs = epochs;
  o.batch = 40;
  o.nesterov = true;
  o.augment = {.crop_padding = 1, .flip = false};
  return o;
}

class EveryKindOfNetwork : public ::testing::TestWithParam<TrainCase> {};

TEST_P(EveryKindOfNetwork, LearnsToTellTenClasses) {
  const bool darts = std::string(GetParam().space) == "darts";
  const Network network = small_network(GetParam(), darts);
  TrainOptions options = short_run(4);
  if (darts) {
    options.auxiliary = 0.4;
    options.drop_path = 0.1;
    options.clip = 5;
    options.augment.cutout = 2;
  }
  const Training training(network, bytes_of_images(600, 1, floats()), bytes_of_images(300, 2, floats()),
                          options);
  TrainState state = training.start();
  EXPECT_LT(training.test_accuracy(state.inner.w, state.statistics), 35);  // chance is 10
  EXPECT_TRUE(training.run(state));
  ASSERT_EQ(state.history.size(), 4U);
  EXPECT_LT(state.history.back().train_loss, 0.6 * state.history.front().train_loss);
  EXPECT_GT(state.history.back().test_accuracy, 80);
  EXPECT_EQ(state.history.back().test_accuracy, training.test_accuracy(state.inner.w, state.statistics));
  EXPECT_EQ(state.inner.step, 4 * 15);
}

INSTANTIATE_TEST_SUITE_P(
    Spaces, EveryKindOfNetwork,
    ::testing::Values(TrainCase{"nasbench201", cell201},
                      TrainCase{
                          "nasbench1shot1-1",
                          "conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(0,1) conv3x3-bn-relu(1,3) "
                          "output(2,4)"},
                      TrainCase{"darts",
                                "normal: (sep_conv_3x3,0)(skip_connect,1) (sep_conv_3x3,0)(dil_conv_3x3,1) "
                                "(avg_pool_3x3,1)(skip_connect,0) (skip_connect,0)(dil_conv_3x3,2) "
                                "reduce: (max_pool_3x3,0)(sep_conv_3x3,1) (skip_connect,2)(max_pool_3x3,1) "
                                "(max_pool_3x3,0)(skip_connect,2) (skip_connect,2)(max_pool_3x3,1)"}),
    [](const auto& row) { return test::test_name(row.param.space); });

// Two steps of PyTorch's SGD by its documented formulas, with the gradient taken here.
TEST(Training, AStepIsClippedNesterovWithDecay) {
  const Network network = small_network({"nasbench201", cell201});
  TrainOptions options = short_run(1);
  options.clip = 0.5;
  options.weight_decay = 0.01;
  options.label_smoothing = 0.1;
  const DeviceImages images = bytes_of_images(80, 1, doubles());
  const Training training(network, images, images, options);
  TrainState state = training.start();
  Tensor w = state.inner.w.clone(), m = at::zeros_like(w);
  Tensor statistics = state.statistics.clone();
  const BatchStream stream(options.seed, "train", 80, {.size = 40, .drop_last = true});
  double loss_sum = 0;
  for (int64_t k = 0; k < 2; ++k) {
    const Batch batch = stream.at(k);
    const Tensor leaf = w.detach().requires_grad_(true);
    const Tensor logits = network
                              .forward(leaf, images.batch(batch.index, options.augment, batch.seed),
                                       {.norm = Norm::remember, .statistics = statistics})
                              .logits;
    const Tensor log_p = at::log_softmax(logits, 1);
    const Tensor picked = log_p.gather(1, images.labels.index_select(0, batch.index).unsqueeze(1));
    const Tensor loss = -(0.9 * picked.mean() + 0.1 * log_p.mean());
    loss_sum += loss.item<double>();
    Tensor g = torch::autograd::grad({loss}, {leaf})[0] + 0.01 * w;
    ASSERT_GT(g.norm().item<double>(), 0.5);
    g = g * (0.5 / (g.norm() + 1e-6));
    m = 0.9 * m + g;
    const double rate = 0.1 * (1 + std::cos(M_PI * static_cast<double>(k) / 2)) / 2;
    w = w - rate * (g + 0.9 * m);
  }
  training.run(state);
  EXPECT_LT(relative_error(state.inner.w, w), 1e-12);
  EXPECT_LT(relative_error(state.statistics, statistics), 1e-12);
  EXPECT_NEAR(state.history[0].train_loss, loss_sum / 2, 1e-12);
}

TEST(Training, OneSeedTheSameBits) {
  const Network network = small_network({"nasbench201", cell201});
  const auto trained = [&](uint64_t seed, int64_t test_batch) {
    TrainOptions options = short_run(1);
    options.seed = seed;
    options.test_batch = test_batch;
    const Training training(network, bytes_of_images(200, 1, floats()), bytes_of_images(50, 2, floats()),
                            options);
    TrainState state = training.start();
    training.run(state);
    return state;
  };
  const TrainState once = trained(3, 50), again = trained(3, 7), other = trained(4, 50);
  EXPECT_TRUE(once.inner.w.equal(again.inner.w));
  EXPECT_TRUE(once.statistics.equal(again.statistics));
  EXPECT_EQ(once.history[0].test_accuracy, again.history[0].test_accuracy);
  EXPECT_FALSE(once.inner.w.equal(other.inner.w));
}

TEST(Training, AStoppedRunGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  const Network network = small_network({"nasbench201", cell201});
  const TrainOptions options = short_run(2);
  const Training training(network, bytes_of_images(200, 1, floats()), bytes_of_images(50, 2, floats()),
                          options);
  TrainState whole = training.start();
  EXPECT_TRUE(training.run(whole));
  for (const int64_t stop : {1, 5, 7, 10}) {  // 5 steps an epoch: within one, at its end, at the very end
    SCOPED_TRACE(stop);
    TrainState state = training.start();
    TrainHooks hooks;
    hooks.interrupted = [&] { return state.inner.step == stop; };
    EXPECT_FALSE(training.run(state, hooks));
    EXPECT_EQ(state.inner.step, stop);
    Checkpoint checkpoint;
    put_training(checkpoint, state);
    save_checkpoint(folder.at("c"), checkpoint);
    TrainState resumed = take_training(load_checkpoint(folder.at("c")), training);
    EXPECT_TRUE(training.run(resumed));
    EXPECT_TRUE(resumed.inner.w.equal(whole.inner.w));
    EXPECT_TRUE(resumed.inner.buffers[0].equal(whole.inner.buffers[0]));
    EXPECT_TRUE(resumed.statistics.equal(whole.statistics));
    ASSERT_EQ(resumed.history.size(), 2U);
    for (size_t e = 0; e < 2; ++e) {
      EXPECT_EQ(resumed.history[e].train_loss, whole.history[e].train_loss);
      EXPECT_EQ(resumed.history[e].train_accuracy, whole.history[e].train_accuracy);
      EXPECT_EQ(resumed.history[e].test_accuracy, whole.history[e].test_accuracy);
      EXPECT_EQ(resumed.history[e].rate, whole.history[e].rate);
    }
  }
}

TEST(Training, ACheckpointOfAnotherRunIsRefused) {
  const Network network = small_network({"nasbench201", cell201});
  const DeviceImages images = bytes_of_images(80, 1, floats());
  const Training training(network, images, images, short_run(2));
  const auto refusal = [&](const auto& spoil) {
    Checkpoint checkpoint;
    put_training(checkpoint, training.start());
    spoil(checkpoint);
    return message<std::runtime_error>([&] { take_training(checkpoint, training); });
  };
  EXPECT_EQ(refusal([](Checkpoint&) {}), "nothing was thrown");
  EXPECT_THAT(refusal([](Checkpoint& c) { c.tensors.erase("training/statistics"); }),
              HasSubstr("training/statistics' is missing"));
  EXPECT_THAT(refusal([](Checkpoint& c) { c.tensors["training/w"] = at::zeros({3}, floats()); }),
              HasSubstr("of 3 numbers"));
  EXPECT_THAT(refusal([](Checkpoint& c) { c.metadata["training"].erase("step"); }), HasSubstr("step"));
  EXPECT_THAT(refusal([](Checkpoint& c) { c.metadata["training"]["step"] = 9; }),
              HasSubstr("step 9 after 0 epochs"));
}

TEST(Training, ALossThatIsNotFiniteNamesEpochAndStep) {
  const Network network = small_network({"nasbench201", cell201});
  const DeviceImages images = bytes_of_images(120, 1, floats());
  TrainOptions options = short_run(2);
  options.rate = 1e30;
  const Training training(network, images, images, options);
  TrainState state = training.start();
  EXPECT_THAT(
      message<NotFiniteError>([&] { training.run(state); }),
      ::testing::AllOf(HasSubstr("in epoch 1, step 2 of 3"),
                       HasSubstr("lower rate, warm up with warmup, or clip the gradient with clip = 5")));
}

TEST(Training, RefusesWhatDoesNotFit) {
  const Network network = small_network({"nasbench201", cell201});
  const DeviceImages images = bytes_of_images(80, 1, floats());
  const auto refusal = [&](const DeviceImages& train, const DeviceImages& tested, const TrainOptions& o) {
    return message([&] { const Training training(network, train, tested, o); });
  };
  TrainOptions options = short_run(1);
  EXPECT_EQ(refusal(images, images, options), "nothing was thrown");
  EXPECT_THAT(refusal(bytes_of_images(39, 1, floats()), images, options),
              HasSubstr("batch = 40: there are only 39 training images"));
  EXPECT_THAT(refusal(images, bytes_of_images(80, 1, floats(), 11), options),
              HasSubstr("the test labels go from 0 to 10"));
  const DeviceImages grey(at::zeros({80, 1, 8, 8}, at::kByte), images.labels, {0}, {1}, floats());
  EXPECT_THAT(refusal(grey, images, options), HasSubstr("the training images are 1 channels of 8 x 8"));
  options.auxiliary = 0.4;
  EXPECT_THAT(refusal(images, images, options), HasSubstr("no second head"));

  const std::pair<std::function<void(TrainOptions&)>, const char*> cases[] = {
      {[](TrainOptions& o) { o.epochs = 0; }, "epochs = 0"},
      {[](TrainOptions& o) { o.batch = 1; }, "batch = 1"},
      {[](TrainOptions& o) { o.rate = 0; }, "rate = 0"},
      {[](TrainOptions& o) { o.rate = std::numeric_limits<double>::quiet_NaN(); }, "rate = nan"},
      {[](TrainOptions& o) { o.schedule = "steps"; }, "choose from cosine, linear"},
      {[](TrainOptions& o) { o.schedule = "linear-gentle"; }, "epochs = 1 must be above"},
      {[](TrainOptions& o) { o.warmup_epochs = 1; }, "warmup = 1"},
      {[](TrainOptions& o) { o.momentum = 1; }, "momentum = 1"},
      {[](TrainOptions& o) { o.momentum = 0; }, "nesterov: needs a momentum above 0"},
      {[](TrainOptions& o) { o.weight_decay = -1; }, "weight_decay = -1"},
      {[](TrainOptions& o) { o.clip = -1; }, "clip = -1"},
      {[](TrainOptions& o) { o.drop_path = 1; }, "drop_path = 1"},
      {[](TrainOptions& o) { o.auxiliary = -1; }, "auxiliary = -1"},
      {[](TrainOptions& o) { o.label_smoothing = 1; }, "label_smoothing = 1"},
      {[](TrainOptions& o) { o.augment.cutout = -1; }, "cutout"},
  };
  for (const auto& [spoil, expected] : cases) {
    TrainOptions bad = short_run(1);
    spoil(bad);
    EXPECT_THAT(refusal(images, images, bad), HasSubstr(expected));
  }
}

TEST(TrainOptions, RatesOfTheSchedules) {
  TrainOptions o;
  o.epochs = 10;
  o.rate = 2;
  EXPECT_EQ(o.rate_at(0, 4), 2);
  EXPECT_NEAR(o.rate_at(20, 4), 1, 1e-15);
  o.schedule = "linear";
  EXPECT_NEAR(o.rate_at(30, 4), 0.5, 1e-15);
  o.schedule = "constant";
  EXPECT_EQ(o.rate_at(39, 4), 2);
  // Of 10 epochs the first five fall to 0 by fifths, the last five from a fifth by twenty-fifths.
  o.schedule = "linear-gentle";
  const std::vector<double> factors = {1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.16, 0.12, 0.08, 0.04};
  for (size_t e = 0; e < 10; ++e) {
    EXPECT_NEAR(o.rate_at(static_cast<int64_t>(e) * 4 + 3, 4), 2 * factors[e], 1e-15);
  }
  o.schedule = "constant";
  o.warmup_epochs = 2;
  EXPECT_EQ(o.rate_at(0, 4), 0.25);
  EXPECT_EQ(o.rate_at(7, 4), 2);
  o.drop_path = 0.2;
  EXPECT_EQ(o.drop_path_at(0), 0);
  EXPECT_NEAR(o.drop_path_at(9), 0.18, 1e-15);
}

TEST(TrainOptions, PublishedRecipesAreValid) {
  for (const SpaceKind kind : {SpaceKind::nasbench201, SpaceKind::nasbench1shot1, SpaceKind::darts}) {
    EXPECT_NO_THROW(default_train_options(kind).validate(50'000));
  }
  EXPECT_NO_THROW(default_train_options(SpaceKind::darts, true).validate(50'000));
  const TrainOptions darts = default_train_options(SpaceKind::darts);
  EXPECT_EQ(darts.epochs, 600);
  EXPECT_EQ(darts.batch, 96);
  EXPECT_EQ(darts.rate, 0.025);
  EXPECT_EQ(darts.augment.cutout, 16);
  const TrainOptions bench = default_train_options(SpaceKind::nasbench201);
  EXPECT_TRUE(bench.nesterov);
  EXPECT_EQ(bench.augment.cutout, 0);
  EXPECT_EQ(default_train_options(SpaceKind::nasbench1shot1).epochs, 108);
}

}  // namespace
}  // namespace bilevel::nas
