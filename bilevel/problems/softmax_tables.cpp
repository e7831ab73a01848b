#include "bilevel/problems/softmax_tables.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "bilevel/problems/softmax_kernels.h"

namespace bilevel::softmax {
namespace {

constexpr int64_t table_features_at_once = 2048;  // for a thread to be worth it

struct Strides {
  int64_t feature, class_;
};
Strides flat_strides(const WeightLayout& layout) {
  return layout.by_feature ? Strides{layout.classes, 1} : Strides{1, layout.features};
}

bool is_table(const WeightLayout& layout) {
  return layout.by_feature && layout.classes == stride_for(layout.classes);
}

template <class T>
void copy_in(const T* flat, const WeightLayout& layout, int64_t stride, T* table) {
  const Strides strides = flat_strides(layout);
  at::parallel_for(0, layout.features, table_features_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      T* const to = table + j * stride;
      for (int64_t k = 0; k < layout.classes; ++k) to[k] = flat[j * strides.feature + k * strides.class_];
      for (int64_t k = layout.classes; k < stride; ++k) to[k] = 0;
    }
  });
}

template <class T>
void copy_out(const T* table, const WeightLayout& layout, int64_t stride, T* flat) {
  const Strides strides = flat_strides(layout);
  at::parallel_for(0, layout.features, table_features_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const T* const from = table + j * stride;
      for (int64_t k = 0; k < layout.classes; ++k) flat[j * strides.feature + k * strides.class_] = from[k];
    }
  });
}

}  // namespace

Tensor empty_table(const WeightLayout& layout, const at::TensorOptions& options) {
  return at::empty({layout.features * stride_for(layout.classes)}, options);
}

Tensor pack(const Tensor& flat, const WeightLayout& layout) {
  const Tensor from = flat.detach().contiguous();
  if (is_table(layout)) return from;
  Tensor table = empty_table(layout, from.options());
  const int64_t stride = stride_for(layout.classes);
  if (from.scalar_type() == at::kFloat) {
    copy_in(from.data_ptr<float>(), layout, stride, table.data_ptr<float>());
  } else {
    copy_in(from.data_ptr<double>(), layout, stride, table.data_ptr<double>());
  }
  return table;
}

Tensor unpack(const Tensor& table, const WeightLayout& layout) {
  if (is_table(layout)) return table;
  Tensor flat = at::empty({layout.size()}, table.options());
  const int64_t stride = stride_for(layout.classes);
  if (table.scalar_type() == at::kFloat) {
    copy_out(table.data_ptr<float>(), layout, stride, flat.data_ptr<float>());
  } else {
    copy_out(table.data_ptr<double>(), layout, stride, flat.data_ptr<double>());
  }
  return flat;
}

}  // namespace bilevel::softmax
