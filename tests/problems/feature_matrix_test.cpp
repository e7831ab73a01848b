#include "bilevel/problems/feature_matrix.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/softmax_kernels.h"
#include "tests/problems/softmax_checks.h"

namespace bilevel::testing {
namespace {

Tensor longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

Tensor to_dense(const FeatureMatrix& matrix) {  // by rows
  const auto& rows = matrix.by_rows();
  Tensor result = at::zeros({matrix.rows(), matrix.features()}, matrix.dtype());
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    for (int64_t e = rows.offsets[i].item<int64_t>(); e < rows.offsets[i + 1].item<int64_t>(); ++e) {
      result[i][rows.indices[e].item<int64_t>()] = rows.values[e];
    }
  }
  return result;
}

Tensor from_columns(const FeatureMatrix& matrix) {
  Tensor result = at::zeros({matrix.rows(), matrix.features()}, matrix.dtype());
  const FeatureMatrix::ColumnBlocks& columns = matrix.by_columns();
  for (int64_t c = 0; c + 1 < columns.offsets.numel(); ++c) {
    const int64_t first_row = c / matrix.features() * columns.rows_at_once;
    for (int64_t e = columns.offsets[c].item<int64_t>(); e < columns.offsets[c + 1].item<int64_t>(); ++e) {
      const int64_t row = columns.rows.defined() ? columns.rows[e].item<int64_t>()
                                                 : (columns.short_rows[e].item<int64_t>() & 0xffff) / 8;
      result[first_row + row][c % matrix.features()] = columns.values[e];
    }
  }
  return result;
}

TEST(FeatureMatrix, ColumnsOfSeveralBlocks) {
  const Tensor dense = thin_examples(1300, 3, 3, 1).features;
  const FeatureMatrix matrix = FeatureMatrix::from_dense(dense, Storage::sparse);
  EXPECT_EQ(matrix.by_columns().offsets.numel(), 3 * 3 + 1);  // a fifth of 512 rows is a hundred
  EXPECT_TRUE(from_columns(matrix).equal(dense));
  const Tensor in_each = dense.ne(0).sum(0), before = matrix.by_columns().stored_before;
  EXPECT_TRUE((before.slice(0, 1) - before.slice(0, 0, 3)).equal(in_each));
  const Tensor factors = random_like(at::empty({1300, 10}, doubles()), 2);
  EXPECT_LT(relative_error(transposed_scores(matrix, {}, factors), dense.t().mm(factors)), 1e-14);
}

TEST(FeatureMatrix, OneColumnOfOneBlock) {
  const Tensor dense = thin_examples(20, 1, 3, 1).features;
  const FeatureMatrix matrix = FeatureMatrix::from_dense(dense, Storage::sparse);
  // Every table of the kernels: none may look for a second block.
  for (const int64_t columns : {3, 10, 40}) {
    const Tensor factors = random_like(at::empty({20, columns}, doubles()), 2);
    EXPECT_LT(relative_error(transposed_scores(matrix, {}, factors), dense.t().mm(factors)), 1e-14);
  }
}

TEST(FeatureMatrix, CompressingLosesNothing) {
  for (const int64_t features : {6, 40}) {
    const Tensor dense = thin_examples(20, features, 3, 1).features;
    const FeatureMatrix matrix = FeatureMatrix::from_dense(dense, Storage::sparse);
    EXPECT_TRUE(to_dense(matrix).equal(dense));
    EXPECT_EQ(matrix.stored(), dense.count_nonzero().item<int64_t>());
    EXPECT_EQ(matrix.bytes(), matrix.stored() * 10);  // 8 of the value, 2 of its short index
    EXPECT_TRUE(from_columns(matrix).equal(dense));
    EXPECT_TRUE(to_dense(matrix.to(at::kFloat)).equal(dense.to(at::kFloat)));
  }
}

TEST(FeatureMatrix, ProductsOfEveryStorage) {
  for (const int64_t features : {6, 40}) {
    const Tensor dense = thin_examples(50, features, 3, 1).features;
    const Tensor index = longs({4, 4, 0, 49});
    for (const int64_t columns : {1, 3, 9, 18, 31, 70}) {
      const Tensor matrix = random_like(at::empty({features, columns}, doubles()), 1);
      const Tensor factors = random_like(at::empty({4, columns}, doubles()), 2);
      for (const Storage storage : {Storage::dense, Storage::sparse}) {
        const FeatureMatrix data = FeatureMatrix::from_dense(dense, storage);
        const Tensor batch = dense.index_select(0, index);
        EXPECT_LT(relative_error(linear_scores(data, {}, matrix), dense.mm(matrix)), 1e-14);
        EXPECT_LT(relative_error(linear_scores(data, index, matrix), batch.mm(matrix)), 1e-14);
        EXPECT_LT(relative_error(transposed_scores(data, index, factors), batch.t().mm(factors)), 1e-14);
      }
    }
  }
  EXPECT_THROW(linear_scores(FeatureMatrix::from_dense(at::ones({3, 2})), {}, at::ones({3, 2})),
               std::invalid_argument);
}

TEST(FeatureMatrix, LargestGramEigenvalue) {
  const Tensor dense = thin_examples(50, 6, 3, 1).features;
  const double expected = value(eigenvalues(dense.t().mm(dense)).max());
  const double found = largest_gram_eigenvalue(FeatureMatrix::from_dense(dense));
  EXPECT_LE(found, expected * (1 + 1e-12));
  EXPECT_GT(found, 0.99 * expected);
}

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(FeatureMatrix, BadInput) {
  using ::testing::HasSubstr;
  const Tensor values = vector({1, 2, 3});
  const auto csr = [&](const std::vector<int64_t>& offsets, const std::vector<int64_t>& columns) {
    return message_of([&] { FeatureMatrix::from_csr(longs(offsets), longs(columns), values, 4); });
  };
  EXPECT_THAT(csr({0, 2, 3}, {0, 3, 1}), HasSubstr("nothing was thrown"));
  EXPECT_THAT(csr({0, 2, 3}, {0, 4, 1}), HasSubstr("row 0 holds column 4: there are 4 features"));
  EXPECT_THAT(csr({0, 2, 3}, {0, -1, 1}), HasSubstr("row 0 holds column -1"));
  EXPECT_THAT(csr({0, 2, 3}, {3, 0, 1}), HasSubstr("row 0 holds column 0 after column 3"));
  EXPECT_THAT(csr({0, 2, 3}, {1, 1, 1}), HasSubstr("row 0 holds column 1 after column 1"));
  EXPECT_THAT(csr({0, 2, 4}, {0, 1, 1}), HasSubstr("from 0 to the 3 values"));
  EXPECT_THAT(csr({0, 5, 3}, {0, 1, 1}), HasSubstr("offsets[2] = 3 is below the one before it, 5"));
  EXPECT_THAT(csr({0, 3}, {0, 1}), HasSubstr("2 columns, but 3 values"));
  EXPECT_THAT(csr({0}, {0, 1, 2}), HasSubstr("0 x 4"));
  EXPECT_THAT(message_of([] { FeatureMatrix::from_dense(at::ones({3})); }), HasSubstr("1 dimensions"));
  EXPECT_THAT(message_of([] { FeatureMatrix::from_dense(at::ones({0, 3})); }), HasSubstr("0 x 3"));
  EXPECT_THAT(message_of([] { FeatureMatrix::from_dense(at::ones({3, 3}, at::kLong)); }), HasSubstr("Long"));
  EXPECT_THAT(message_of([] { FeatureMatrix::from_dense({}); }), HasSubstr("undefined"));
}

// The kernels of every instruction set that this processor has, against plain tensors.
template <class T>
void check_softmax_kernels(at::ScalarType dtype, double near) {
  using softmax::Instructions;
  for (const Instructions set : {Instructions::baseline, Instructions::avx2, Instructions::avx512}) {
    if (set > softmax::best_instructions()) continue;
    for (const int64_t classes : {2, 4, 7, 10, 20, 30, 50}) {
      const int64_t stride = softmax::stride_for(classes), count = 6;
      const Tensor logits = 30 * random_like(at::empty({count, classes}, dtype), 1);
      logits[1] *= 100;  // most of it underflows
      Tensor table = at::zeros({count, stride}, dtype);
      table.narrow(1, 0, classes).copy_(logits);
      const Tensor labels = at::arange(count, at::kLong).remainder(classes);
      Tensor losses = at::empty({count}, dtype);
      softmax::kernels<T>(stride, set)
          .softmax(count, classes, stride, labels.data_ptr<int64_t>(), table.data_ptr<T>(),
                   losses.data_ptr<T>());
      EXPECT_LT(relative_error(table.narrow(1, 0, classes), logits.softmax(1)), near) << name_of(set);
      EXPECT_EQ(value(table.narrow(1, classes, stride - classes).abs().sum()), 0);
      const Tensor expected = -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1);
      EXPECT_LT(relative_error(losses, expected), near);
    }
  }
}
TEST(SoftmaxKernels, SoftmaxOfEveryInstructionSet) {
  check_softmax_kernels<double>(at::kDouble, 1e-14);
  check_softmax_kernels<float>(at::kFloat, 1e-6);
}

// A table with a row per class, as the dense kernels have it.
Tensor by_class(const Tensor& by_feature) {
  return at::constant_pad_nd(by_feature.t(),
                             {0, softmax::padded_features(by_feature.size(0)) - by_feature.size(0)})
      .contiguous();
}

// In the kernels' type, against the product in double.
template <class T>
void check_dense_kernels(softmax::Instructions set, const Tensor& dense, const Tensor& index, int64_t classes,
                         at::ScalarType dtype, double near) {
  const int64_t stride = softmax::stride_for(classes), features = dense.size(1), count = index.numel();
  const auto& kernel = softmax::kernels<T>(stride, set);
  const Tensor typed = dense.to(dtype);
  const softmax::DenseRows<T> rows{typed.data_ptr<T>(), dense.size(0), features};
  const softmax::RowList list{index.data_ptr<int64_t>(), 0, count};
  const Tensor weights = random_like(at::empty({features, classes}, doubles()), 1);
  const Tensor factors = random_like(at::empty({count, classes}, doubles()), 2);
  const Tensor batch = dense.index_select(0, index);
  Tensor product = at::full({count, stride}, 7, dtype);
  const softmax::RowList next{index.data_ptr<int64_t>(), 2, count / 2};  // is asked for, and changes nothing
  kernel.dense_product(rows, list, next, classes, by_class(weights).to(dtype).data_ptr<T>(), stride,
                       product.data_ptr<T>());
  const auto what = fmt::format("{}, {} classes, {} features", name_of(set), classes, features);
  EXPECT_LT(relative_error(product.narrow(1, 0, classes).to(at::kDouble), batch.mm(weights)), near) << what;
  EXPECT_EQ(value(product.narrow(1, classes, stride - classes).abs().sum()), 0) << what;
  Tensor sum = at::ones({classes, softmax::padded_features(features)}, dtype);
  const Tensor padded = at::constant_pad_nd(factors, {0, stride - classes}).to(dtype).contiguous();
  kernel.dense_outer(rows, list, next, classes, padded.data_ptr<T>(), stride, sum.data_ptr<T>());
  EXPECT_LT(relative_error(sum.narrow(1, 0, features).t().to(at::kDouble), 1 + batch.t().mm(factors)), near)
      << what;
  EXPECT_TRUE(sum.narrow(1, features, sum.size(1) - features).eq(1).all().item<bool>()) << what;
}

TEST(SoftmaxKernels, DenseProductsOfEveryInstructionSet) {
  using softmax::Instructions;
  const Tensor index = longs({22, 3, 3, 22, 0, 21, 20, 1, 22});  // the last rows, at the end of the memory
  for (const Instructions set : {Instructions::baseline, Instructions::avx2, Instructions::avx512}) {
    if (set > softmax::best_instructions()) continue;
    for (const int64_t features : {1, 11, 32, 49, 65, 113}) {
      const Tensor dense = thin_examples(23, features, 3, 1).features;
      for (const int64_t classes : {1, 2, 3, 5, 7, 10, 11, 20, 31, 70}) {
        check_dense_kernels<double>(set, dense, index, classes, at::kDouble, 1e-14);
        check_dense_kernels<float>(set, dense, index, classes, at::kFloat, 1e-6);
      }
    }
  }
}

// What lies beyond a row's end is another row's, and must not be seen.
TEST(SoftmaxKernels, ARowWithInfinitiesSpoilsItsOwnProductsOnly) {
  Tensor dense = thin_examples(5, 35, 3, 1).features.to(at::kFloat);
  dense[3].fill_(std::numeric_limits<float>::infinity());
  const FeatureMatrix data = FeatureMatrix::from_dense(dense, Storage::dense);
  const Tensor finite = linear_scores(data, {}, at::ones({35, 10}, at::kFloat)).isfinite().all(1);
  EXPECT_TRUE(finite.equal(at::tensor({1, 1, 1, 0, 1}, at::kInt).to(at::kBool))) << finite;
}

// Some examples and one feature without non-zeros; odd numbers of them elsewhere.
Tensor with_empty_rows() {
  Tensor dense = thin_examples(23, 11, 3, 1).features.clone();
  for (const int64_t row : {0, 7, 22}) dense[row].zero_();
  dense.select(1, 5).zero_();
  for (int64_t i = 1; i < 6; ++i) dense[i].narrow(0, 0, i).fill_(0.5);  // 1, 2, ... at the least
  return dense;
}

struct Indices {  // of the same entries, twice
  Tensor whole, eighths;
  explicit Indices(const Tensor& indices) : whole(indices), eighths(indices.mul(8).to(at::kShort)) {}
};

template <class T>
void check_product_kernels(at::ScalarType dtype, double near, bool with_short_indices) {
  using softmax::Instructions;
  const Tensor dense = with_empty_rows().to(dtype);
  const FeatureMatrix sparse = FeatureMatrix::from_dense(dense, Storage::sparse);
  const FeatureMatrix::ColumnBlocks& by_columns = sparse.by_columns();
  const Indices of_rows(sparse.by_rows().indices),
      of_columns(by_columns.short_rows.to(at::kInt).bitwise_and(0xffff).div(8, "trunc").to(at::kInt));
  const auto shorts = [&](const Indices& indices) {
    return with_short_indices ? static_cast<const uint16_t*>(indices.eighths.data_ptr()) : nullptr;
  };
  const softmax::SparseRows<T> rows{sparse.by_rows().offsets.template data_ptr<int64_t>(),
                                    of_rows.whole.data_ptr<int32_t>(),
                                    sparse.by_rows().values.template data_ptr<T>(), shorts(of_rows)};
  const softmax::SparseColumns<T> columns{by_columns.offsets.template data_ptr<int64_t>(),
                                          with_short_indices ? nullptr : of_columns.whole.data_ptr<int32_t>(),
                                          shorts(of_columns),
                                          by_columns.values.template data_ptr<T>(),
                                          11,
                                          1,
                                          by_columns.rows_at_once};
  for (const Instructions set : {Instructions::baseline, Instructions::avx2, Instructions::avx512}) {
    if (set > softmax::best_instructions()) continue;
    for (const int64_t stride : {4, 8, 16, 20, 32, 64}) {
      const auto& kernel = softmax::kernels<T>(stride, set);
      const Tensor table = random_like(at::empty({11, stride}, dtype), 1);
      const Tensor factors = random_like(at::empty({23, stride}, dtype), 2);
      Tensor product = at::empty({23, stride}, dtype), sum = at::ones({11, stride}, dtype);
      kernel.sparse_product(rows, {nullptr, 0, 23}, table.data_ptr<T>(), stride, product.data_ptr<T>());
      EXPECT_LT(relative_error(product, dense.mm(table)), near) << name_of(set);
      EXPECT_EQ(value(product[7].abs().sum()), 0) << name_of(set);
      Tensor one = at::empty_like(product), two = at::empty_like(product);
      const Tensor other = random_like(at::empty({11, stride}, dtype), 3);
      kernel.sparse_products(rows, {nullptr, 0, 23}, other.data_ptr<T>(), table.data_ptr<T>(), stride,
                             one.data_ptr<T>(), two.data_ptr<T>());
      EXPECT_LT(relative_error(one, dense.mm(other)), near) << name_of(set);
      EXPECT_TRUE(two.equal(product)) << name_of(set);
      // In two ranges of features, as two threads would.
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 4}, {4, 11}}) {
        kernel.sparse_outer(rows, {nullptr, 0, 23}, factors.data_ptr<T>(), stride, first, last,
                            sum.data_ptr<T>());
      }
      EXPECT_LT(relative_error(sum, 1 + dense.t().mm(factors)), near) << name_of(set);
      const T scale[1] = {3};
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 4}, {4, 11}}) {
        kernel.sparse_transposed(columns, factors.data_ptr<T>(), stride, first, last,
                                 {table.data_ptr<T>(), scale, 0}, sum.data_ptr<T>());
      }
      EXPECT_LT(relative_error(sum, 3 * table + dense.t().mm(factors)), near) << name_of(set);
    }
  }
}
TEST(SoftmaxKernels, ProductsOfEveryInstructionSet) {
  for (const bool short_indices : {false, true}) {
    check_product_kernels<double>(at::kDouble, 1e-14, short_indices);
    check_product_kernels<float>(at::kFloat, 1e-6, short_indices);
  }
}

// Where the number of entries is no multiple of what a loop takes at once, the last one's place is read again
// with a zero: its value must not be.
TEST(SoftmaxKernels, AnInfiniteNonZeroStaysInfinite) {
  for (int64_t entries = 1; entries < 9; ++entries) {
    Tensor dense = at::zeros({3, 9}, at::kFloat);
    dense[1].narrow(0, 0, entries).fill_(1);
    dense[1][entries - 1] = std::numeric_limits<float>::infinity();
    const FeatureMatrix data = FeatureMatrix::from_dense(dense, Storage::sparse);
    const Tensor scores = linear_scores(data, {}, at::ones({9, 10}, at::kFloat));
    EXPECT_TRUE(scores[1].eq(std::numeric_limits<float>::infinity()).all().item<bool>()) << scores;
    EXPECT_EQ(value(scores[0].abs().sum() + scores[2].abs().sum()), 0);
  }
}

// 8192 features are the most whose indices are kept in 16 bits.
TEST(FeatureMatrix, ShortIndicesUpToTheirLastOne) {
  for (const int64_t features : {8192, 8193}) {
    Tensor dense = at::zeros({3, features}, doubles());
    dense[0][features - 1] = 2;
    dense[2][0] = 3;
    dense[2][features - 2] = 5;
    const FeatureMatrix matrix = FeatureMatrix::from_dense(dense, Storage::sparse);
    EXPECT_EQ(matrix.by_rows().short_indices.defined(), features == 8192);
    EXPECT_EQ(matrix.bytes(), 3 * (8 + (features == 8192 ? 2 : 4)));
    const Tensor table = random_like(at::empty({features, 10}, doubles()), 1);
    EXPECT_LT(relative_error(linear_scores(matrix, {}, table), dense.mm(table)), 1e-14);
    const Tensor factors = random_like(at::empty({3, 10}, doubles()), 2);
    EXPECT_LT(relative_error(transposed_scores(matrix, {}, factors), dense.t().mm(factors)), 1e-14);
  }
}

}  // namespace
}  // namespace bilevel::testing
