#pragma once
// Features and distances as the tests of tables write them.

#include <ATen/ATen.h>

#include "bilevel/problems/feature_matrix.h"

namespace bilevel::test {

inline Features dense(const Tensor& values) {
  Features features;
  features.dense = values;
  return features;
}

inline double largest(const Tensor& values) { return values.abs().max().item<double>(); }

}  // namespace bilevel::test
