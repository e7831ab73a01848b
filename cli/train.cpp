// `bilevel train`: trains a cell's network from scratch and tests it.

#include "bilevel/jobs/train.h"

#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

void print_train(const TrainJobResult& result) {
  fmt::print("{}\n{} parameters, {} multiply-adds; {} training and {} test images of {}\n\n", result.genotype,
             result.parameters, result.multiply_adds, result.train_images, result.test_images, result.data);
  fmt::print("{:>6}{:>11}{:>12}{:>10}{:>10}{:>10}\n", "epoch", "rate", "loss", "train %", "test %",
             "seconds");
  for (const nas::TrainEpoch& r : result.state.history) {
    fmt::print("{:>6}{:>11.5f}{:>12.4f}{:>10.2f}{:>10.2f}{:>10.1f}\n", r.epoch, r.rate, r.train_loss,
               r.train_accuracy, r.test_accuracy, r.seconds);
  }
  if (result.end.status == RunStatus::finished) {
    fmt::print("\ntest accuracy {:.2f} % after {} epochs, {:.1f} s\n",
               result.state.history.back().test_accuracy, result.state.epoch(), result.seconds);
  }
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  add_job<TrainJobOptions>(
      app, exit_code,
      {"train", "Train a cell's network from scratch and test it",
       "Defaults are the published recipes: nasbench201 200 epochs, batches of 256, Nesterov at 0.1;\n"
       "darts 600 epochs, batches of 96, 0.025, cutout 16, drop path 0.2, second head 0.4, 36 channels and\n"
       "20 cells; nasbench1shot1 108 epochs, batches of 256, 0.2 (by momentum, where NAS-Bench-101 took\n"
       "RMSProp). Rates fall along a cosine.\n"
       "Examples:\n"
       "  bilevel train --genotype found/genotype.json --data cifar10 --device cuda --out trained\n"
       "  bilevel train --arch '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|' \\\n"
       "    --data fashion-mnist --channels 8 --cells 1 --epochs 2 --json\n"
       "  bilevel train --resume trained"},
      run_train, print_train);
}

}  // namespace bilevel::cli
