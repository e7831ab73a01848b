#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/core/random.h"
#include "bilevel/data/csr.h"
#include "bilevel/data/gzip.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/svmlight.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor sparse_normal(int64_t rows, int64_t columns, at::ScalarType dtype = at::kDouble) {
  Random random(5);
  const Tensor values = random.normal({rows, columns}, at::TensorOptions().dtype(dtype));
  const Tensor kept = random.uniform({rows, columns}, at::TensorOptions().dtype(at::kDouble)).lt(0.2);
  return values * kept.to(dtype);
}

TEST(Csr, AgreesWithDenseMatrices) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Tensor dense = sparse_normal(30, 17, dtype);
    dense[4].zero_();
    const SparseMatrix matrix = from_dense(dense);
    matrix.validate();
    EXPECT_TRUE(to_dense(matrix).equal(dense));
    const SparseMatrix across = transposed(matrix);
    across.validate();
    EXPECT_TRUE(to_dense(across).equal(dense.t()));
    EXPECT_TRUE(to_dense(transposed(across)).equal(dense));
    const Tensor index = at::tensor({29, 4, 4, 0}).to(at::kLong);
    EXPECT_TRUE(to_dense(select_rows(matrix, index)).equal(dense.index_select(0, index)));
    EXPECT_TRUE(document_frequency(matrix).equal(dense.ne(0).sum(0)));
    const Tensor scale = at::arange(1, 18, at::TensorOptions().dtype(at::kDouble));
    EXPECT_TRUE(to_dense(scale_columns(matrix, scale)).equal((dense.to(at::kDouble) * scale).to(dtype)));
    const Tensor unit = to_dense(unit_rows(matrix));
    const Tensor norms = dense.norm(2, {1}, true).clamp_min(1e-30);
    EXPECT_LT((unit - dense / norms).abs().max().item<double>(), dtype == at::kFloat ? 1e-6 : 1e-15);
    EXPECT_TRUE(to_dense(to_dtype(matrix, at::kDouble)).equal(dense.to(at::kDouble)));
  }
}

TEST(Csr, MakesUnitRowsOfHugeAndTinyValues) {
  const Tensor dense =
      at::tensor({3e200, 4e200, 3e-200, 4e-200}, at::TensorOptions().dtype(at::kDouble)).view({2, 2});
  EXPECT_TRUE(at::allclose(to_dense(unit_rows(from_dense(dense))),
                           at::tensor({0.6, 0.8, 0.6, 0.8}, dense.options()).view({2, 2}), 1e-15));
}

TEST(Csr, RefusesWhatIsNoMatrix) {
  const auto message = [](auto spoil) {
    SparseMatrix matrix = from_dense(at::tensor({1.0, 0.0, 2.0, 3.0}).view({2, 2}));
    matrix.column = matrix.column.clone();
    spoil(matrix);
    return message_of<std::invalid_argument>([&] { matrix.validate("it"); });
  };
  EXPECT_EQ(message([](SparseMatrix&) {}), "nothing was thrown");
  EXPECT_THAT(message([](SparseMatrix& m) { m.rows = 3; }), HasSubstr("it: 3 rows need 4 row starts, not 3"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.columns = 1; }), HasSubstr("column 1 at entry 2"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.columns = int64_t{1} << 31; }), HasSubstr("2^31-1 columns"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.column[1] = -1; }), HasSubstr("column -1"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.column[2] = 0; }), HasSubstr("must increase"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.row_start[1] = 4; }), HasSubstr("decreases after row 1"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.row_start[2] = 2; }), HasSubstr("must go from 0 to 3"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.value[0] = std::nan(""); }), HasSubstr("not a number"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.value = Tensor(); }), HasSubstr("undefined"));
  EXPECT_THAT(message([](SparseMatrix& m) { m.column = m.column.to(at::kLong); }), HasSubstr("int32"));
  SparseMatrix wide = from_dense(at::tensor({1.0, 2.0}).view({1, 2}));
  wide.columns = 2000000000;
  EXPECT_THAT(message_of<std::invalid_argument>([&] { to_dense(wide); }), HasSubstr("keep it sparse"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { select_rows(wide, at::tensor({1}).to(at::kLong)); }),
              HasSubstr("row 1 of 1 rows"));
}

class Svmlight : public ::testing::Test {
 protected:
  LabelledSparse read(std::string_view text, const SvmlightOptions& options = {}) const {
    return read_svmlight(folder_.put("a.svm", text), options);
  }
  std::string message(std::string_view text, const SvmlightOptions& options = {}) const {
    return message_of([&] { read(text, options); });
  }
  TemporaryFolder folder_;
};

Tensor floats(std::vector<float> values, int64_t columns) { return at::tensor(values).view({-1, columns}); }

TEST_F(Svmlight, ReadsTheFormat) {
  const LabelledSparse data = read("# made by hand\n+1 1:0.5 3:2 # first\n\n-1\t2:-1e-1\r\n0\n");
  data.examples.validate();
  EXPECT_TRUE(to_dense(data.examples).equal(floats({0.5F, 0, 2, 0, -0.1F, 0, 0, 0, 0}, 3)));
  EXPECT_TRUE(data.labels.equal(at::tensor({1.0, -1.0, 0.0}, data.labels.options())));
}

TEST_F(Svmlight, FindsTheBaseOverAllFiles) {
  EXPECT_TRUE(to_dense(read("1 0:5 1:6").examples).equal(floats({5, 6}, 2)));
  EXPECT_TRUE(to_dense(read("1 1:5 2:6").examples).equal(floats({5, 6}, 2)));
  EXPECT_TRUE(to_dense(read("1 1:5 2:6", {.base = IndexBase::zero}).examples).equal(floats({0, 5, 6}, 3)));
  EXPECT_THAT(message("1 0:5", {.base = IndexBase::one}), HasSubstr("an index from 1 to"));
  const auto both = read_svmlight_files({folder_.put("a", "1 1:5"), folder_.put("b", "1 0:1 3:7")});
  EXPECT_TRUE(to_dense(both[0].examples).equal(floats({0, 5, 0, 0}, 4)));
  EXPECT_TRUE(to_dense(both[1].examples).equal(floats({1, 0, 0, 7}, 4)));
  EXPECT_EQ(read("1 1:5", {.columns = 10}).examples.columns, 10);
  EXPECT_THAT(message("1 1:5\n1 4:2\n1 3:1", {.columns = 3}),
              HasSubstr("line 2: expected indices from 1 to 3"));
}

TEST_F(Svmlight, NamesTheLineOfWhatIsWrong) {
  EXPECT_THAT(message("1 1:2\nx 1:2\n"), AllOf(HasSubstr(folder_.at("a.svm") + ": line 2:"),
                                               HasSubstr("a finite number as label, found 'x'")));
  EXPECT_THAT(message("1,2 1:2\n"), HasSubstr("several labels"));
  for (const char* pair : {"1", "1:", ":1", "a:1", "1:x", "1:2:3", "1.5:2"}) {
    EXPECT_THAT(message(fmt::format("1 {}\n", pair)), HasSubstr("line 1: expected INDEX:VALUE")) << pair;
  }
  EXPECT_THAT(message("1 1:nan\n"), HasSubstr("a finite Float as value of index 1, found 'nan'"));
  EXPECT_THAT(message("1 1:1e39\n"), HasSubstr("a finite Float"));
  EXPECT_EQ(message("1 1:1e39\n", {.dtype = at::kDouble}), "nothing was thrown");
  EXPECT_THAT(message("1 -1:1\n"), HasSubstr("an index from 0 to"));
  EXPECT_THAT(message("1 99999999999:1\n"), HasSubstr("Number the features without gaps"));
  EXPECT_THAT(message("1 99999999999999999999:1\n"), HasSubstr("expected INDEX:VALUE"));
  EXPECT_THAT(message("1 2:1 2:1\n"), HasSubstr("increase along a line, found 2 after 2"));
  EXPECT_THAT(message("1 3:1 2:1\n"), HasSubstr("2 after 3"));
  EXPECT_THAT(message("1 qid:3 1:1\n"), HasSubstr("query ids"));
  EXPECT_EQ(read("1 qid:3 1:1\n", {.ignore_query_ids = true}).examples.nonzeros(), 1);
  EXPECT_THAT(message("# nothing\n"), HasSubstr("found none"));
}

TEST_F(Svmlight, GoesRound) {
  const Tensor dense = sparse_normal(200, 60);
  std::string text;
  for (int64_t i = 0; i < dense.size(0); ++i) {
    text += fmt::format("{}", i % 3);
    for (int64_t j = 0; j < dense.size(1); ++j) {
      const double value = dense[i][j].item<double>();
      if (value != 0) text += fmt::format(" {}:{}", j + 1, value);
    }
    text += '\n';
  }
  const SvmlightOptions options{.columns = 60, .dtype = at::kDouble};
  EXPECT_TRUE(to_dense(read(text, options).examples).equal(dense));
  if (has_gzip()) {
    EXPECT_TRUE(to_dense(read(gzip(text), options).examples).equal(dense));
  }
}

TEST(Labels, NumbersTheDistinctOnes) {
  const Tensor labels = at::tensor({1.0, -1.0, 7.0, -1.0}, at::TensorOptions().dtype(at::kDouble));
  const std::vector<int64_t> values = distinct_labels(labels, "a.svm");
  EXPECT_THAT(values, ElementsAre(-1, 1, 7));
  EXPECT_TRUE(number_labels(labels, values, "a.svm").equal(at::tensor({1, 0, 2, 0}).to(at::kLong)));
  EXPECT_THAT(message_of([&] {
                number_labels(labels, {-1, 1}, "b.svm");
              }),
              HasSubstr("b.svm: example 2: expected a label among -1 1, found 7"));
  EXPECT_THAT(message_of([&] { distinct_labels(labels / 2, "a"); }),
              HasSubstr("a: example 0: expected a whole number"));
  EXPECT_THAT(message_of([&] { distinct_labels(labels * std::nan(""), "a"); }), HasSubstr("whole number"));
  EXPECT_THAT(message_of([&] { distinct_labels(labels.ge(-5), "a"); }), HasSubstr("two classes, found one"));
}

TEST(Labels, ChecksTheirRangeAndThatEachClassIsThere) {
  const Tensor labels = at::tensor({0, 2, 0}).to(at::kLong);
  check_labels(labels, 3, false, "a");
  EXPECT_THAT(message_of([&] { check_labels(labels, 2, false, "a"); }),
              HasSubstr("a: example 1: expected a label from 0 to 1, found 2"));
  EXPECT_THAT(message_of([&] { check_labels(labels, 3, true, "a"); }), HasSubstr("found none of class 1"));
}

}  // namespace
}  // namespace bilevel::test
