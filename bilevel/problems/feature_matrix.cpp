#include "bilevel/problems/feature_matrix.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace bilevel {
namespace {

// A number costs a dense product a third (AVX-512) to two fifths (AVX2) of what a non-zero costs a sparse one
// (bench/softmax_oracle).
constexpr double sparse_up_to = 1.0 / 3;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

void check_type(const Tensor& values) {
  require(values.defined(), "the feature matrix is an undefined tensor");
  require(values.device().is_cpu(), fmt::format("the closed forms of softmax regression run on the CPU, but "
                                                "the features are on {}: use the autograd problem there",
                                                values.device().str()));
  require(values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble,
          fmt::format("features must be float or double, but are {}", c10::toString(values.scalar_type())));
}

void check_sizes(int64_t rows, int64_t features) {
  require(rows > 0 && features > 0,
          fmt::format("the feature matrix is {} x {}: it needs at least one example and one feature", rows,
                      features));
  const int64_t limit = std::numeric_limits<int32_t>::max();
  require(rows <= limit && features <= limit,
          fmt::format("the feature matrix is {} x {}: at most {} of either", rows, features, limit));
}

template <class T>
FeatureMatrix::Compressed compress(const Tensor& dense) {
  const int64_t rows = dense.size(0), features = dense.size(1);
  FeatureMatrix::Compressed result;
  result.offsets = at::zeros({rows + 1}, at::kLong);
  auto* offsets = result.offsets.data_ptr<int64_t>();
  const T* from = dense.data_ptr<T>();
  for (int64_t i = 0; i < rows; ++i) {
    int64_t found = 0;
    for (int64_t j = 0; j < features; ++j) found += from[i * features + j] != 0 ? 1 : 0;
    offsets[i + 1] = offsets[i] + found;
  }
  result.indices = at::empty({offsets[rows]}, at::kInt);
  result.values = at::empty({offsets[rows]}, dense.options());
  auto* indices = result.indices.data_ptr<int32_t>();
  T* values = result.values.data_ptr<T>();
  for (int64_t i = 0, entry = 0; i < rows; ++i) {
    for (int64_t j = 0; j < features; ++j) {
      if (from[i * features + j] == 0) continue;
      indices[entry] = static_cast<int32_t>(j);
      values[entry++] = from[i * features + j];
    }
  }
  return result;
}

constexpr int64_t most_short_indices = 8192;  // 8 times one of them fits 16 bits

// As the kernels read them (softmax_kernels.h), or undefined.
Tensor shortened(const Tensor& indices, int64_t bound) {
  if (bound > most_short_indices) return {};
  Tensor result = at::empty(indices.sizes(), at::kShort);  // LibTorch 1.13 has no unsigned type of 16 bits
  const auto* from = indices.data_ptr<int32_t>();
  auto* to = result.data_ptr<int16_t>();
  for (int64_t e = 0; e < indices.numel(); ++e) to[e] = static_cast<int16_t>(8 * from[e]);
  return result;
}

// Long columns amortise the beginning of each; 512 rows of factors of 16 floats are 32 KB.
int64_t rows_of_a_block(int64_t rows, int64_t features, int64_t stored) {
  constexpr double long_column = 100, fewest = 512;
  const double share =
      static_cast<double>(stored) / static_cast<double>(rows) / static_cast<double>(features);
  const double wanted = std::max(fewest, long_column / std::max(share, 1e-300));
  return wanted < static_cast<double>(rows) ? static_cast<int64_t>(wanted) : rows;
}

template <class T>
FeatureMatrix::ColumnBlocks transpose(const FeatureMatrix::Compressed& from, int64_t rows, int64_t features) {
  FeatureMatrix::ColumnBlocks result;
  const int64_t at_once = rows_of_a_block(rows, features, from.values.numel());
  const int64_t blocks = (rows + at_once - 1) / at_once;
  result.rows_at_once = at_once;
  result.offsets = at::zeros({blocks * features + 1}, at::kLong);
  result.rows = at::empty_like(from.indices);
  result.values = at::empty_like(from.values);
  result.stored_before = at::zeros({features + 1}, at::kLong);
  const auto* row_offsets = from.offsets.data_ptr<int64_t>();
  const auto* columns = from.indices.data_ptr<int32_t>();
  const T* from_values = from.values.data_ptr<T>();
  auto* offsets = result.offsets.data_ptr<int64_t>();
  auto* before = result.stored_before.data_ptr<int64_t>();
  auto* to_rows = result.rows.data_ptr<int32_t>();
  T* values = result.values.data_ptr<T>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = row_offsets[i]; e < row_offsets[i + 1]; ++e) {
      ++offsets[i / at_once * features + columns[e] + 1];
      ++before[columns[e] + 1];
    }
  }
  for (int64_t c = 0; c < blocks * features; ++c) offsets[c + 1] += offsets[c];
  for (int64_t j = 0; j < features; ++j) before[j + 1] += before[j];
  Tensor next_free = result.offsets.clone();
  auto* next = next_free.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = row_offsets[i]; e < row_offsets[i + 1]; ++e) {
      const int64_t to = next[i / at_once * features + columns[e]]++;
      to_rows[to] = static_cast<int32_t>(i % at_once);
      values[to] = from_values[e];
    }
  }
  result.short_rows = shortened(result.rows, at_once);
  if (result.short_rows.defined()) result.rows.reset();
  return result;
}

void check_entries(const Tensor& offsets, const Tensor& columns, int64_t stored, int64_t features) {
  const auto* offset = offsets.data_ptr<int64_t>();
  const auto* column = columns.data_ptr<int64_t>();
  const int64_t rows = offsets.numel() - 1;
  require(offset[0] == 0 && offset[rows] == stored,
          fmt::format("offsets run from {} to {}: they must run from 0 to the {} values", offset[0],
                      offset[rows], stored));
  for (int64_t i = 0; i < rows; ++i) {  // before any entry is read by them
    if (offset[i] <= offset[i + 1]) continue;
    throw std::invalid_argument(
        fmt::format("offsets[{}] = {} is below the one before it, {}", i + 1, offset[i + 1], offset[i]));
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
      if (column[e] < 0 || column[e] >= features) {
        throw std::invalid_argument(
            fmt::format("row {} holds column {}: there are {} features", i, column[e], features));
      }
      if (e > offset[i] && column[e - 1] >= column[e]) {
        throw std::invalid_argument(
            fmt::format("row {} holds column {} after column {}: columns must ascend, each once", i,
                        column[e], column[e - 1]));
      }
    }
  }
}

}  // namespace

FeatureMatrix FeatureMatrix::from_dense(const Tensor& values, Storage storage) {
  check_type(values);
  require(
      values.dim() == 2,
      fmt::format("features must be a matrix, examples x features, but have {} dimensions", values.dim()));
  check_sizes(values.size(0), values.size(1));
  const Tensor dense = values.detach().contiguous();
  if (storage == Storage::automatic) {
    const auto nonzeros = static_cast<double>(dense.count_nonzero().item<int64_t>());
    storage =
        nonzeros <= sparse_up_to * static_cast<double>(dense.numel()) ? Storage::sparse : Storage::dense;
  }
  if (storage == Storage::sparse) {
    const Compressed rows =
        dense.scalar_type() == at::kFloat ? compress<float>(dense) : compress<double>(dense);
    return from_csr(rows.offsets, rows.indices, rows.values, dense.size(1));
  }
  FeatureMatrix result;
  result.rows_ = dense.size(0);
  result.features_ = dense.size(1);
  result.dense_ = dense;
  return result;
}

FeatureMatrix FeatureMatrix::from_csr(const Tensor& offsets, const Tensor& columns, const Tensor& values,
                                      int64_t features) {
  check_type(values);
  for (const Tensor& part : {offsets, columns, values}) {
    require(part.defined() && part.dim() == 1 && part.device().is_cpu(),
            "offsets, columns and values of compressed rows must be vectors on the CPU");
  }
  require(offsets.scalar_type() == at::kLong && at::isIntegralType(columns.scalar_type(), false),
          fmt::format("offsets must be int64 and columns integers, but are {} and {}",
                      c10::toString(offsets.scalar_type()), c10::toString(columns.scalar_type())));
  require(columns.numel() == values.numel(),
          fmt::format("{} columns, but {} values: one for each", columns.numel(), values.numel()));
  check_sizes(offsets.numel() - 1, features);
  FeatureMatrix result;
  result.rows_ = offsets.numel() - 1;
  result.features_ = features;
  result.by_rows_.offsets = offsets.contiguous();
  check_entries(result.by_rows_.offsets, columns.to(at::kLong).contiguous(), values.numel(), features);
  result.by_rows_.indices = columns.to(at::kInt).contiguous();
  result.by_rows_.values = values.detach().contiguous();
  result.by_rows_.short_indices = shortened(result.by_rows_.indices, features);
  result.by_columns_ = values.scalar_type() == at::kFloat
                           ? transpose<float>(result.by_rows_, result.rows_, features)
                           : transpose<double>(result.by_rows_, result.rows_, features);
  return result;
}

FeatureMatrix FeatureMatrix::to(at::ScalarType dtype) const {
  require(dtype == at::kFloat || dtype == at::kDouble,
          fmt::format("features must be float or double, but {} was asked for", c10::toString(dtype)));
  FeatureMatrix result = *this;
  for (Tensor* values : {&result.dense_, &result.by_rows_.values, &result.by_columns_.values}) {
    if (values->defined()) *values = values->to(dtype);
  }
  return result;
}

int64_t FeatureMatrix::stored() const { return is_sparse() ? by_rows_.values.numel() : dense_.numel(); }

int64_t FeatureMatrix::bytes() const {
  const auto value = static_cast<int64_t>(c10::elementSize(dtype()));
  if (!is_sparse()) return stored() * value;
  return stored() * (value + (by_rows_.short_indices.defined() ? 2 : 4));
}

at::ScalarType FeatureMatrix::dtype() const { return (is_sparse() ? by_rows_.values : dense_).scalar_type(); }

}  // namespace bilevel
