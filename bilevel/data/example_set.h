#pragma once
// Examples with their labels, as jobs take them from files or from memory: the type for both. Problems
// convert them to what their formulas take: LabelledExamples (dense, on any device) or LabelledRows (for the
// closed forms). Readers give what their format has: LabelledFeatures, LabelledSparse and CsvTable.

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
  Tensor labels = {};      // int64, 0 .. classes-1; or the targets of a regression, in double precision
  int64_t size() const { return labels.defined() ? labels.numel() : 0; }
};

}  // namespace bilevel
