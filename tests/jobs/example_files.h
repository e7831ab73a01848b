#pragma once
// Small labelled sets, in memory and as files, and a context that interrupts a job.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/jobs/example_sets.h"
#include "bilevel/problems/synthetic_classes.h"
#include "bilevel/run/run_context.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {

inline ExampleSet drawn_examples(int64_t count, const char* stream) {
  const LabelledExamples drawn =
      draw_gaussian_classes({.classes = 3, .features = 5, .separation = 2}, count, 1, stream);
  return {drawn.features.to(at::kDouble), drawn.labels};
}

// Three classes in five dimensions; `share` of the training labels are those of the next class.
inline ExampleSets example_sets(double share = 0) {
  ExampleSets sets{.train = drawn_examples(90, "train"),
                   .valid = drawn_examples(45, "valid"),
                   .test = drawn_examples(45, "test")};
  Random random(8);
  const Tensor wrong = random.uniform({90}, at::TensorOptions().dtype(at::kDouble)).lt(share);
  sets.train.labels = at::where(wrong, (sets.train.labels + 1).remainder(3), sets.train.labels);
  return sets;
}

// NAME-x.npy and NAME-y.npy.
inline void write_examples(const TemporaryFolder& folder, const std::string& name, const ExampleSet& set) {
  write_npy(folder / (name + "-x.npy"), set.features.dense);
  write_npy(folder / (name + "-y.npy"), set.labels);
}

// Runs a job in a folder until it has asked so often whether it is interrupted; then the folder is free.
template <typename Run>
auto until_interrupted(const std::string& folder, int64_t question, Run run) {
  RunContext context(
      {.keep = true, .out = folder, .save_seconds = 0},
      {.interrupted = [asked = int64_t{0}, question]() mutable { return ++asked >= question; }});
  return run(context);
}

}  // namespace bilevel::test
