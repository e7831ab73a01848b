#include "bilevel/problems/linear_scores.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/problems/softmax_point.h"
#include "bilevel/problems/softmax_sweep.h"
#include "bilevel/problems/softmax_tables.h"

namespace bilevel {
namespace {

using softmax::Table;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int power_iterations = 30;

struct Rows : torch::CustomClassHolder {  // keeps the data alive as long as the graph
  Rows(FeatureMatrix of, Tensor rows) : data(std::move(of)), index(std::move(rows)) {}
  FeatureMatrix data;
  Tensor index;
  int64_t count() const { return index.defined() ? index.numel() : data.rows(); }
};
using RowsPointer = c10::intrusive_ptr<Rows>;

void save(AutogradContext* context, const RowsPointer& rows) {
  context->saved_data["rows"] = c10::IValue::make_capsule(rows);
}
RowsPointer saved(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Rows>(context->saved_data["rows"].toCapsule());
}

// A matrix of `rows` x classes as the kernels' table.
WeightLayout layout_of(int64_t rows, int64_t classes) {
  return {.classes = classes, .features = rows, .by_feature = true};
}

template <class T>
softmax::Sweep<T> sweep_of(const Rows& rows, int64_t classes) {
  return {.data = rows.data,
          .index = rows.index.defined() ? rows.index.data_ptr<int64_t>() : nullptr,
          .count = rows.count(),
          .classes = classes};
}

template <class T>
Tensor product(const Rows& rows, const Tensor& matrix) {
  const WeightLayout layout = layout_of(matrix.size(0), matrix.size(1));
  const Tensor table = softmax::pack(matrix.reshape({-1}), layout, softmax::table_for(rows.data));
  const WeightLayout of_result = layout_of(rows.count(), layout.classes);
  Tensor result = softmax::empty_table(of_result, Table::by_feature, table.options());
  softmax::Sweep<T> sweep = sweep_of<T>(rows, layout.classes);
  sweep.tables[0] = table.data_ptr<T>();
  T* const to = result.data_ptr<T>();
  const int64_t stride = softmax::stride_for(layout.classes);
  sweep.block = [&](int64_t first, int64_t count, T* scores, T*, T*) {
    std::copy(scores, scores + count * stride, to + first * stride);
  };
  softmax::run(sweep);
  return softmax::unpack(result, of_result, Table::by_feature).view({rows.count(), layout.classes});
}

template <class T>
Tensor transposed_product(const Rows& rows, const Tensor& factors) {
  const WeightLayout layout = layout_of(rows.data.features(), factors.size(1));
  const Tensor from =
      softmax::pack(factors.reshape({-1}), layout_of(factors.size(0), layout.classes), Table::by_feature);
  const Table order = softmax::table_for(rows.data);
  Tensor sum = softmax::empty_table(layout, order, from.options());
  softmax::Sweep<T> sweep = sweep_of<T>(rows, layout.classes);
  sweep.sum = sum.data_ptr<T>();
  const T* const all = from.data_ptr<T>();
  const int64_t stride = softmax::stride_for(layout.classes);
  sweep.block = [&](int64_t first, int64_t count, T*, T*, T* to) {
    std::copy(all + first * stride, all + (first + count) * stride, to);
  };
  softmax::run(sweep);
  return softmax::unpack(sum, layout, order).view({layout.features, layout.classes});
}

void check(const FeatureMatrix& data, const Tensor& matrix, int64_t rows) {
  if (matrix.dim() != 2 || matrix.size(0) != rows || matrix.scalar_type() != data.dtype() ||
      !matrix.device().is_cpu()) {
    throw std::invalid_argument(fmt::format(
        "a product with {} x {} features of {} needs a matrix of {} rows of that type on the CPU, but it has "
        "{} dimensions and {} elements of {} on {}",
        data.rows(), data.features(), c10::toString(data.dtype()), rows, matrix.dim(), matrix.numel(),
        c10::toString(matrix.scalar_type()), matrix.device().str()));
  }
}

RowsPointer rows_of(const FeatureMatrix& data, const Tensor& index) {
  return c10::make_intrusive<Rows>(data, index.defined() ? index.contiguous() : index);
}

struct TransposedProduct : Function<TransposedProduct> {
  static Tensor forward(AutogradContext* context, const Tensor& factors, const RowsPointer& rows);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct Product : Function<Product> {
  static Tensor forward(AutogradContext* context, const Tensor& matrix, const RowsPointer& rows) {
    save(context, rows);
    return rows->data.dtype() == at::kFloat ? product<float>(*rows, matrix) : product<double>(*rows, matrix);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {TransposedProduct::apply(gradients[0], saved(context)), Tensor()};
  }
};

Tensor TransposedProduct::forward(AutogradContext* context, const Tensor& factors, const RowsPointer& rows) {
  save(context, rows);
  return rows->data.dtype() == at::kFloat ? transposed_product<float>(*rows, factors)
                                          : transposed_product<double>(*rows, factors);
}
variable_list TransposedProduct::backward(AutogradContext* context, const variable_list& gradients) {
  return {Product::apply(gradients[0], saved(context)), Tensor()};
}

}  // namespace

Tensor linear_scores(const FeatureMatrix& data, const Tensor& index, const Tensor& matrix) {
  check(data, matrix, data.features());
  return Product::apply(matrix, rows_of(data, index));
}

Tensor transposed_scores(const FeatureMatrix& data, const Tensor& index, const Tensor& factors) {
  const RowsPointer rows = rows_of(data, index);
  check(data, factors, rows->count());
  return TransposedProduct::apply(factors, rows);
}

double largest_gram_eigenvalue(const FeatureMatrix& data) {
  Random random(named_seed(0, "power-iteration"));
  Tensor v = random.normal({data.features(), 1}, at::TensorOptions().dtype(data.dtype()));
  double largest = 0;
  for (int i = 0; i < power_iterations; ++i) {
    v = v / v.norm();
    v = transposed_scores(data, {}, linear_scores(data, {}, v));
    largest = v.norm().item<double>();
    if (largest == 0) break;  // all features are zero
  }
  return largest;
}

}  // namespace bilevel
