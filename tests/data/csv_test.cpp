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
  EXPECT_THAT(message("1\t2\t3\n\t\"4\"\t5\n", {.separator = '\t'}), HasSubstr("found '' in column 0"));
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
  for (const char* value : {"inf", "-inf", "1e999"}) {
    EXPECT_THAT(message(fmt::format("1,2\n3,{}\n", value)), HasSubstr("a finite number in column 1"))
        << value;
  }
  EXPECT_THAT(
      message("1,,3\n4,5,6\n7,,nan\n"),
      HasSubstr("line 1: expected a value in every field, found '' in column 1, and 3 missing values in "
                "all; fill them in, take the mean of the training rows with --missing mean, or leave out "
                "their rows with --missing drop"));
  EXPECT_THAT(message("a,b\n\"1,2\n"), HasSubstr("line 2: expected a closing quote"));
  EXPECT_THAT(message("a,b\n\"1\"2,3\n"), HasSubstr("after a quoted field"));
  EXPECT_THAT(message(""), HasSubstr("an empty file"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("only a header"));
  EXPECT_THAT(message("1e39\n", {.dtype = at::kFloat}), HasSubstr("that a float can hold"));
  EXPECT_THAT(message("1,2\n3,4\n", {.largest_bytes = 7}), HasSubstr("at most 7 bytes"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { read("1", {.dtype = at::kLong}); }),
              HasSubstr("dtype"));
}

// Each of the ways in which a good table is not what is read here has its own answer.
TEST_F(Csv, TellsWaysOfWritingATableApart) {
  const CsvOptions last{.label_column = "last"};
  const auto expect = [&](std::string_view text, const std::string& where, const std::string& way_out,
                          const CsvOptions& options) {
    EXPECT_THAT(message(text, options),
                AllOf(HasSubstr(folder_.at("a.csv") + ": " + where), HasSubstr(way_out)))
        << text;
  };
  // Text in a table of numbers.
  expect("x,y\nmany,1\n2,0\n3,1\n", "line 2: expected a finite number in column 0 ('x'), found 'many'",
         "leave the column out with --drop", last);
  expect("P17,1,0\n18,2,1\n",
         "line 1: expected a first row of names or a first row of an example, found a mixture, with 'P17' in "
         "column 0 and a number below it",
         "--header no", last);
  expect("x,,y\n0,1,0\n", "line 1: expected a name for column 1, found ''", "--header no", last);
  // Separators that were forced, and blanks.
  expect("a;b;y\n1;2;0\n", "line 1: expected fields separated by ',', found 'a;b;y'", "--separator semicolon",
         {.separator = ',', .label_column = "last"});
  expect("a\tb\ty\n1\t2\t0\n", "line 1: expected fields separated by ','", "--separator tab",
         {.separator = ',', .label_column = "last"});
  expect("a,b,y\n1,2,0\n", "line 1: expected fields separated by '\\x09'", "--separator comma",
         {.separator = '\t', .label_column = "last"});
  expect("1 2 0\n", "line 1: expected fields separated by ','", "separated by blanks", last);
  // Values.
  for (const char* missing : {"", "NA", "?", "nan", "NaN", "null", "N/A"}) {
    expect(fmt::format("a,b,y\n1,{},0\n", missing),
           fmt::format("line 2: expected a value in every field, found '{}' in column 1 ('b'), and 1 missing "
                       "values in all",
                       missing),
           "--missing mean", last);
  }
  expect("a,b,y\n1.5,\"2,5\",0\n1.5,2,0\n", "line 2: expected a finite number in column 1 ('b'), found '2,5'",
         "--decimal comma", last);
  expect("a,b,y\n1,\"2,500\",0\n", "line 2: expected decimals that can be told from thousands, found '2,500'",
         "--decimal comma", last);
  expect("a,b,y\n1,1e999,0\n", "line 2: expected a finite number in column 1 ('b'), found '1e999'",
         "Rescale the column", last);
  expect("a,b,y\n1,inf,0\n", "line 2: expected a finite number in column 1 ('b'), found 'inf'", "not finite",
         last);
  expect("a;b;y\n1,5;2;0\n2,5;2.5;1\n", "line 3: expected a finite number in column 1 ('b'), found '2.5'",
         "decimals in this file are written with a comma, and this one with a point",
         {.decimal = ',', .label_column = "last"});
  // Numbers where classes are wanted: a table without labels, or the targets of a regression.
  expect("a,b,y\n1,2,3.5\n2,3,4.5\n",
         "line 2: expected a whole number as label in column 2 ('y'), found '3.5'",
         "choose another column with --label-column; targets of a regression are not classes", last);
  // What only looks like another way is read.
  EXPECT_THAT(read("\"a;b\",c d\n1,2\n").names, ElementsAre("a;b", "c d"));
  EXPECT_THAT(read("\xef\xbb\xbfx,y\n1,2\n").names, ElementsAre("x", "y"));
}

TEST_F(Csv, MatchesColumnsByTheNamesOfAnotherTable) {
  CsvOptions options{.label_column = "last"};
  const TableSchema train = read("a,b,c,y\n1,2,3,0\n", options).schema;
  TableSchema schema = train;
  schema.file = "train.csv";
  options.like = &schema;
  const CsvTable table = read("c,y,a,b\n3,0,1,2\n6,1,4,5\n", options);
  EXPECT_TRUE(table.values.equal(matrix({1, 2, 3, 4, 5, 6}, 3)));
  EXPECT_TRUE(table.labels.equal(at::tensor({0, 1}).to(at::kLong)));
  EXPECT_THAT(table.names, ElementsAre("a", "b", "c"));
  options.dtype = at::kFloat;
  EXPECT_TRUE(read("y,c,b,a\n0,3,2,1\n", options).values.equal(at::tensor({1.0F, 2.0F, 3.0F}).view({1, 3})));
  // The label column may have another name where the rest agrees.
  EXPECT_TRUE(read("a,b,c,class\n1,2,3,7\n", options).labels.equal(at::tensor({7}).to(at::kLong)));
  // Without a header their places must do.
  EXPECT_TRUE(read("1,2,3,7\n", options).labels.equal(at::tensor({7}).to(at::kLong)));
  EXPECT_THAT(
      message("a,b,d,y\n1,2,3,0\n", options),
      HasSubstr("line 1: expected the columns of train.csv, found no column 'c' and a column 'd' that it "
                "does not have"));
  EXPECT_THAT(message("a,b,y\n1,2,0\n", options), HasSubstr("found no column 'c';"));
  EXPECT_THAT(message("b,a,x,c,y\n1,2,3,4,0\n", options), HasSubstr("found a column 'x' that it does not"));
  schema.columns[0].name = schema.columns[1].name = "a";
  schema.columns[2].name = "b";
  EXPECT_TRUE(read("a,a,b,y\n1,2,3,0\n", options).values.equal(at::tensor({1.0F, 2.0F, 3.0F}).view({1, 3})));
  EXPECT_THAT(message("b,a,a,y\n1,2,3,0\n", options), HasSubstr("'a' twice in"));
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
