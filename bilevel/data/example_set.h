#pragma once
// Examples with their classes, as they are read from files or given in memory. Problems convert them to what
// their formulas take: LabelledExamples (dense, on any device) or LabelledRows (for the closed forms).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"

namespace bilevel {

struct ExampleSet {
  ExampleSet() = default;
  ExampleSet(Tensor rows, Tensor classes) : labels(std::move(classes)) { features.dense = std::move(rows); }
  ExampleSet(Features rows, Tensor classes) : features(std::move(rows)), labels(std::move(classes)) {}

  Features features = {};  // examples x features, dense or sparse, on the CPU
  Tensor labels = {};      // whole numbers, 0 .. classes-1
  int64_t size() const { return labels.defined() ? labels.numel() : 0; }
};

}  // namespace bilevel
