// A step of training a NAS-Bench-201 cell from scratch (Nesterov momentum, weight decay, norms that remember
// their statistics), on images in memory and without augmentation. Prints JSON as bench/peers/train_step.py
// does: milliseconds a step, the process's own where it has one thread of the CPU.
//
// Options: --genotype --channels --cells (a stage) --batch --steps --threads --allocator --device.

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/support.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/train.h"
#include "bilevel/run/restart.h"

namespace {

double now(bool own) {
  timespec time{};
  clock_gettime(own ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

bilevel::DeviceImages images(int64_t samples, const at::TensorOptions& tensors) {
  const auto drawn = bilevel::nas::draw_images({.samples = samples, .height = 32, .width = 32, .seed = 1},
                                               at::TensorOptions(at::kFloat));
  const at::Tensor bytes = drawn.images.mul(40).add(128).round().clamp(0, 255).to(at::kByte);
  return {
      bytes.to(tensors.device()), drawn.labels.to(tensors.device()), {128, 128, 128}, {50, 50, 50}, tensors};
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  const std::string genotype = options.text(
      "genotype",
      "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|");
  bilevel::nas::NetworkOptions size;
  size.channels = options.integer("channels", 16);
  size.cells = options.integer("cells", 1);
  bilevel::nas::TrainOptions train;
  train.batch = options.integer("batch", 64);
  const int64_t steps = options.integer("steps", 3);
  const bench::Machine machine(options);
  const auto tensors = at::TensorOptions(at::kFloat).device(c10::Device(options.text("device", "cpu")));
  options.finish();
  train.epochs = 2;
  train.nesterov = true;
  const auto space = bilevel::nas::make_space("nasbench201");
  const bilevel::nas::Network network(space, bilevel::nas::parse_genotype(space, genotype), size);
  const bilevel::nas::Training training(network, images(train.batch * steps, tensors), images(1, tensors),
                                        train);
  // The first epoch warms up.
  const bool own = at::get_num_threads() == 1 && tensors.device().is_cpu();
  double begin = 0, end = 0;
  bilevel::nas::TrainHooks hooks;
  hooks.epoch_ended = [&](const bilevel::nas::TrainState& state) {
    (state.epoch() == 1 ? begin : end) = now(own);
  };
  bilevel::nas::TrainState state = training.start();
  training.run(state, hooks);
  const double milliseconds = 1e3 * (end - begin) / static_cast<double>(steps);
  fmt::print("{}\n", nlohmann::ordered_json{{"parameters", network.parameters()},
                                            {"loss", state.history.back().train_loss},
                                            {"step_ms", milliseconds},
                                            {"images_per_second",
                                             1e3 * static_cast<double>(train.batch) / milliseconds}}
                         .dump(2));
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_train_step: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_train_step: {}\n", error.what());
  return 1;
}
