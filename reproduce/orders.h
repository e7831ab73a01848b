#pragma once
// What the experiments on stocBiO's theory share. An order is a slope on logarithmic axes, fitted by least
// squares.

#include <ATen/ATen.h>

#include <vector>

#include "bilevel/core/tensor.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {

inline const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble);

inline double squared(const Tensor& t) { return t.dot(t).item<double>(); }

struct Order {
  std::vector<double> sizes, values;  // both positive
  void add(double size, double value) {
    sizes.push_back(size);
    values.push_back(value);
  }
  double slope() const {
    const Tensor x = at::tensor(sizes, doubles).log(), y = at::tensor(values, doubles).log();
    return ((x - x.mean()).dot(y) / squared(x - x.mean())).item<double>();
  }
};

class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  double value() const { return sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// The orders in kappa and 1/epsilon of table 1, for AID-BiO and ITD-BiO, and of table 2, for stocBiO.
Json deterministic_orders(const ReproduceOptions& options, Json& claims);
Json stochastic_orders(const ReproduceOptions& options, Json& claims);

}  // namespace bilevel::reproduce
