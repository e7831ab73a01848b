#include "bilevel/problems/softmax_tables.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "bilevel/problems/softmax_kernels.h"

namespace bilevel::softmax {
namespace {

constexpr int64_t table_rows_at_once = 2048;  // of a table, for a thread to be worth it

// A table's rows, their length, and how far apart the numbers of one lie in the flat vector.
struct TableShape {
  int64_t rows, filled, length;
  int64_t next_row, next;  // in the flat vector
};
TableShape shape_of(const WeightLayout& layout, Table order) {
  const int64_t next_feature = layout.by_feature ? layout.classes : 1;
  const int64_t next_class = layout.by_feature ? 1 : layout.features;
  if (order == Table::by_feature) {
    return {layout.features, layout.classes, stride_for(layout.classes), next_feature, next_class};
  }
  return {layout.classes, layout.features, padded_features(layout.features), next_class, next_feature};
}

bool is_table(const TableShape& shape) { return shape.next == 1 && shape.filled == shape.length; }

// The table's numbers one by one, along whichever of the two the flat vector is consecutive in.
template <class Function>
void for_numbers(const TableShape& shape, const Function& function) {
  if (shape.next == 1 || shape.rows >= table_rows_at_once) {
    at::parallel_for(0, shape.rows, table_rows_at_once, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < shape.filled; ++i) {
          function(r * shape.next_row + i * shape.next, r * shape.length + i);
        }
      }
    });
  } else {
    for (int64_t i = 0; i < shape.filled; ++i) {
      for (int64_t r = 0; r < shape.rows; ++r) {
        function(r * shape.next_row + i * shape.next, r * shape.length + i);
      }
    }
  }
}

template <class T>
void copy_in(const T* flat, const TableShape& shape, T* table) {
  for_numbers(shape, [&](int64_t from, int64_t to) { table[to] = flat[from]; });
  for (int64_t r = 0; r < shape.rows; ++r) {
    std::fill(table + r * shape.length + shape.filled, table + (r + 1) * shape.length, T(0));
  }
}

template <class T>
void copy_out(const T* table, const TableShape& shape, T* flat) {
  for_numbers(shape, [&](int64_t to, int64_t from) { flat[to] = table[from]; });
}

}  // namespace

Table table_for(const FeatureMatrix& data) { return data.is_sparse() ? Table::by_feature : Table::by_class; }

Tensor empty_table(const WeightLayout& layout, Table order, const at::TensorOptions& options) {
  const TableShape shape = shape_of(layout, order);
  return at::empty({shape.rows * shape.length}, options);
}

Tensor pack(const Tensor& flat, const WeightLayout& layout, Table order) {
  const Tensor from = flat.detach().contiguous();
  const TableShape shape = shape_of(layout, order);
  if (is_table(shape)) return from;
  Tensor table = empty_table(layout, order, from.options());
  if (from.scalar_type() == at::kFloat) {
    copy_in(from.data_ptr<float>(), shape, table.data_ptr<float>());
  } else {
    copy_in(from.data_ptr<double>(), shape, table.data_ptr<double>());
  }
  return table;
}

Tensor unpack(const Tensor& table, const WeightLayout& layout, Table order) {
  const TableShape shape = shape_of(layout, order);
  if (is_table(shape)) return table;
  Tensor flat = at::empty({layout.size()}, table.options());
  if (table.scalar_type() == at::kFloat) {
    copy_out(table.data_ptr<float>(), shape, flat.data_ptr<float>());
  } else {
    copy_out(table.data_ptr<double>(), shape, flat.data_ptr<double>());
  }
  return flat;
}

}  // namespace bilevel::softmax
