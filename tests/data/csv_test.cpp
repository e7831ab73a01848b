#include "bilevel/data/csv.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "bilevel/core/random.h"
#include "bilevel/data/gzip.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Csv : public ::testing::Test {
 protected:
  CsvTable read(std::string_view text, const CsvOptions& options = {}) const {
    return read_csv(folder_.put("a.csv", text), options);
  }
  std::string message(std::string_view text, const CsvOptions& options = {}) const {
    return message_of([&] { read(text, options); });
  }
  TemporaryFolder folder_;
};

Tensor matrix(std::vector<double> values, int64_t columns) {
  return at::tensor(values, at::TensorOptions().dtype(at::kDouble)).view({-1, columns});
}

TEST_F(Csv, ReadsNumbersWithAndWithoutAHeader) {
  const CsvTable plain = read("1, 2.5 ,-3e2\n\n4,5,6");
  EXPECT_TRUE(plain.values.equal(matrix({1, 2.5, -300, 4, 5, 6}, 3)));
  EXPECT_FALSE(plain.labels.defined());
  EXPECT_TRUE(plain.names.empty());
  const CsvTable named = read("\"a,b\",c\r\n\"1\",2\r\n");
  EXPECT_TRUE(named.values.equal(matrix({1, 2}, 2)));
  EXPECT_THAT(named.names, ElementsAre("a,b", "c"));
  EXPECT_TRUE(read("7,8\n1,2\n", {.header = CsvHeader::present}).values.equal(matrix({1, 2}, 2)));
  EXPECT_THAT(read("a\t\"b c\"\n1\t 2\n", {.separator = '\t'}).names, ElementsAre("a", "b c"));
  EXPECT_THAT(message("1\t2\t3\n\t\"4\"\t5\n", {.separator = '\t'}), HasSubstr("column 0, found ''"));
}

TEST_F(Csv, FindsTheLabelColumn) {
  const std::string text = "x,class,y\n1,3,2\n4,5.0,6\n";
  for (const char* column : {"class", "1"}) {
    const CsvTable table = read(text, {.label_column = column});
    EXPECT_TRUE(table.labels.equal(at::tensor({3, 5}).to(at::kLong))) << column;
    EXPECT_TRUE(table.values.equal(matrix({1, 2, 4, 6}, 2)));
    EXPECT_THAT(table.names, ElementsAre("x", "y"));
  }
  EXPECT_TRUE(read(text, {.label_column = "last"}).labels.equal(at::tensor({2, 6}).to(at::kLong)));
  EXPECT_TRUE(read("1,2\n", {.label_column = "first"}).labels.equal(at::tensor({1}).to(at::kLong)));
  EXPECT_THAT(message(text, {.label_column = "color"}), HasSubstr("a label column 'color'"));
  EXPECT_THAT(message(text, {.label_column = "3"}), HasSubstr("3 columns"));
  EXPECT_THAT(message("1.5,2\n", {.label_column = "first"}),
              HasSubstr("line 1: expected a whole number as label"));
}

TEST_F(Csv, FindsTheGroupColumnBesideTheLabels) {
  const std::string text = "shop,x,class,y\n7,1,3,2\n-2,4,5,6\n";
  for (const char* column : {"shop", "0", "first"}) {
    const CsvTable table = read(text, {.label_column = "class", .group_column = column});
    EXPECT_TRUE(table.groups.equal(at::tensor({7, -2}).to(at::kLong))) << column;
    EXPECT_TRUE(table.labels.equal(at::tensor({3, 5}).to(at::kLong)));
    EXPECT_TRUE(table.values.equal(matrix({1, 2, 4, 6}, 2)));
    EXPECT_THAT(table.names, ElementsAre("x", "y"));
  }
  EXPECT_FALSE(read(text).groups.defined());
  EXPECT_THAT(message(text, {.label_column = "class", .group_column = "2"}), HasSubstr("column 2 for both"));
  EXPECT_THAT(message(text, {.group_column = "store"}), HasSubstr("a group column 'store'"));
  EXPECT_THAT(message("1.5,2\n", {.group_column = "first"}),
              HasSubstr("line 1: expected a whole number as group"));
}

TEST_F(Csv, NamesLineAndColumnOfWhatIsWrong) {
  EXPECT_THAT(message("1,2\n3\n"),
              AllOf(HasSubstr(folder_.at("a.csv") + ": line 2:"), HasSubstr("2 fields")));
  EXPECT_THAT(message("1,2\n3,4,5\n"), HasSubstr("line 2: expected 2 fields as in the first row, found 3"));
  EXPECT_THAT(message("1,2\n3,x\n"), HasSubstr("line 2: expected a finite number in column 1, found 'x'"));
  EXPECT_THAT(message("1,2\n,4\n"), HasSubstr("column 0, found ''"));
  for (const char* value : {"nan", "inf", "-inf", "1e999"}) {
    EXPECT_THAT(message(fmt::format("1,2\n3,{}\n", value)), HasSubstr("a finite number in column 1"))
        << value;
  }
  EXPECT_THAT(message("1,nan\n"), HasSubstr("line 1: expected a finite number"));
  EXPECT_THAT(message("1,,3\n4,5,6\n"), HasSubstr("a mixture, with '' in column 1"));
  EXPECT_THAT(message("a,b\n\"1,2\n"), HasSubstr("line 2: expected a closing quote"));
  EXPECT_THAT(message("a,b\n\"1\"2,3\n"), HasSubstr("after a quoted field"));
  EXPECT_THAT(message(""), HasSubstr("an empty file"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("only a header"));
  EXPECT_THAT(message("1e39\n", {.dtype = at::kFloat}), HasSubstr("that a float can hold"));
  EXPECT_THAT(message("1,2\n3,4\n", {.largest_bytes = 7}), HasSubstr("at most 7 bytes"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { read("1", {.dtype = at::kLong}); }),
              HasSubstr("dtype"));
}

TEST_F(Csv, GoesRoundAcrossBlocksOfRows) {
  const Tensor values = Random(3).normal({3001, 700}, at::TensorOptions().dtype(at::kDouble));
  std::string text;
  for (int64_t i = 0; i < values.size(0); ++i) {
    const double* row = values.data_ptr<double>() + i * values.size(1);
    for (int64_t j = 0; j < values.size(1); ++j) text += fmt::format("{}{}", row[j], j == 699 ? '\n' : ';');
  }
  EXPECT_TRUE(read(text, {.separator = ';'}).values.equal(values));
  const Tensor narrow = read(text, {.separator = ';', .dtype = at::kFloat}).values;
  EXPECT_TRUE(narrow.equal(values.to(at::kFloat)));
  if (has_gzip()) {
    EXPECT_TRUE(read(gzip(text), {.separator = ';'}).values.equal(values));
  }
}

}  // namespace
}  // namespace bilevel::test
