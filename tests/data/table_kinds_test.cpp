// Tables as people's programs write them: each kind is a file as it comes, read through the door that the
// jobs use.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bilevel/data/feature_files.h"
#include "tests/data/files.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As the UCI archive has it: no header, names of classes.
constexpr const char* iris_data =
    "5.1,3.5,1.4,0.2,Iris-setosa\n4.9,3.0,1.4,0.2,Iris-setosa\n7.0,3.2,4.7,1.4,Iris-versicolor\n"
    "6.3,3.3,6.0,2.5,Iris-virginica\n";
// As a German spreadsheet exports it: a mark, semicolons, decimal commas, \r\n.
constexpr const char* spreadsheet =
    "\xef\xbb\xbfL\xc3\xa4nge;Breite;\"Art; "
    "Sorte\"\r\n5,1;3,5;setosa\r\n4,9;3;setosa\r\n7,0;3,2;\"versi\"\"color\"\r\n";
// As Kaggle has the Titanic's: an id, names with commas in quotes, missing ages, categories.
constexpr const char* titanic =
    "PassengerId,Survived,Pclass,Name,Sex,Age,Embarked\n"
    "1,0,3,\"Braund, Mr. Owen Harris\",male,22,S\n"
    "2,1,1,\"Cumings, Mrs. John Bradley (Florence Briggs Thayer)\",female,38,C\n"
    "3,1,3,\"Heikkinen, Miss. Laina\",female,,S\n"
    "4,1,1,\"Futrelle, Mrs. Jacques Heath (Lily May Peel)\",female,35,\n";

class TableKinds : public ::testing::Test {
 protected:
  LabelledFeatures read(const std::string& name, const std::string& text, FeatureFileOptions options = {}) {
    return read_files({folder_.put(name, text)}, options).at(0);
  }
  std::vector<LabelledFeatures> read_files(const std::vector<std::string>& paths,
                                           FeatureFileOptions options = {}) {
    notes_.clear();
    options.note = [this](const std::string& note) { notes_.push_back(note); };
    std::vector<LabelledFile> files;
    for (const std::string& path : paths) files.push_back({path, ""});
    return read_labelled_files(files, options);
  }
  static Tensor rows(std::vector<float> values, int64_t columns) {
    return at::tensor(values).view({-1, columns});
  }
  static Tensor whole(std::vector<int64_t> values) { return at::tensor(values); }
  TemporaryFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(TableKinds, NamesOfClassesWithoutAHeader) {
  const LabelledFeatures iris = read("iris.data.csv", iris_data);
  EXPECT_TRUE(iris.features.dense[2].equal(at::tensor({7.0F, 3.2F, 4.7F, 1.4F})));
  EXPECT_THAT(iris.label_names, ElementsAre("Iris-setosa", "Iris-versicolor", "Iris-virginica"));
  EXPECT_TRUE(iris.labels.equal(whole({0, 0, 1, 2})));
  EXPECT_TRUE(iris.names.empty());
  EXPECT_TRUE(notes_.empty());
}

TEST_F(TableKinds, SemicolonsDecimalCommasAMarkAndCarriageReturns) {
  const LabelledFeatures table = read("export.csv", spreadsheet);
  EXPECT_TRUE(table.features.dense.equal(rows({5.1F, 3.5F, 4.9F, 3.0F, 7.0F, 3.2F}, 2)));
  EXPECT_THAT(table.names, ElementsAre("L\xc3\xa4nge", "Breite"));
  EXPECT_THAT(table.label_names, ElementsAre("setosa", "versi\"color"));
  EXPECT_EQ(table.schema.label, "Art; Sorte");
  EXPECT_THAT(notes_, ElementsAre(folder_.at("export.csv") + ": fields are separated by semicolons",
                                  folder_.at("export.csv") + ": decimals are written with commas"));
  FeatureFileOptions forced{.separator = "semicolon", .decimal = "comma"};
  EXPECT_TRUE(read("export.csv", spreadsheet, forced).features.dense.equal(table.features.dense));
  EXPECT_TRUE(notes_.empty());
  forced.decimal = "point";
  EXPECT_THAT(message_of([&] { read("export.csv", spreadsheet, forced); }),
              AllOf(HasSubstr("'5,1'"), HasSubstr("--decimal comma")));
}

// As older programs write it; spreadsheets also offer "Unicode", which is UTF-16.
TEST_F(TableKinds, Latin1AndUtf16) {
  const LabelledFeatures table = read("old.csv", "H\xf6he,Art\n1,B\xe4r\n2,Reh\n");
  EXPECT_THAT(table.names, ElementsAre("H\xc3\xb6he"));
  EXPECT_THAT(table.label_names, ElementsAre("B\xc3\xa4r", "Reh"));
  EXPECT_THAT(message_of([&] {
                read("wide.csv", std::string("\xff\xfe"
                                             "a\0,\0b\0",
                                             8));
              }),
              HasSubstr("wide.csv: byte 0: expected a table in UTF-8 or Latin-1, found UTF-16"));
}

// Not asked about its separators.
TEST_F(TableKinds, WhatIsNoTextIsSaidToBeNone) {
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 4000; ++i) noise += static_cast<char>((state = state * 1664525 + 1013904223) >> 24U);
  const auto refusal = [&](const std::string& text, const FeatureFileOptions& options = {}) {
    return message_of([&] { read("a.csv", text, options); });
  };
  const auto is_no_text = HasSubstr(": expected a table in UTF-8 or Latin-1, found ");
  EXPECT_THAT(refusal(noise), AllOf(is_no_text, HasSubstr("control characters in the first 4000 bytes")));
  EXPECT_THAT(refusal(noise, {.separator = "comma"}), is_no_text);
  EXPECT_THAT(refusal(std::string("a\0,\0b\0", 6)), AllOf(is_no_text, HasSubstr("a.csv: byte 1: ")));
  const std::string zeros("\x14\0\6\0\b\0", 6);
  EXPECT_THAT(refusal("PK\x03\x04" + zeros),
              AllOf(is_no_text, HasSubstr("a workbook or another ZIP archive; save the sheet as CSV")));
  EXPECT_THAT(refusal("PAR1\x15\x04" + zeros), AllOf(is_no_text, HasSubstr("Parquet; write it as CSV")));
  EXPECT_THAT(refusal("\x93NUMPY\x01" + zeros), HasSubstr("a name that ends in .npy"));
  // A name, and a slip in long text, are no reason to refuse.
  EXPECT_EQ(read("a.csv", "PAR1,y\n1,0\n2,1\n").labels.numel(), 2);
  EXPECT_EQ(
      read("a.csv", "name of the first column,y\n1,the first\x1b class\n2,the other class\n").labels.numel(),
      2);
}

TEST_F(TableKinds, DatesAreSaidToBeDates) {
  const auto refusal = [&](const std::string& date) {
    return message_of([&] { read("a.csv", "when,size,y\n" + date + ",1,0\n" + date + ",2,1\n"); });
  };
  for (const std::string date : {"2024-01-31", "31.1.2024", "31.01.24"}) {
    EXPECT_THAT(refusal(date),
                AllOf(HasSubstr("line 2: expected a finite number in column 0 ('when'), found '" + date),
                      HasSubstr("it looks like a date"), HasSubstr("--drop")));
  }
  EXPECT_THAT(refusal("1.2.3"), HasSubstr("beyond what a double can hold"));
  EXPECT_THAT(refusal("1e999"), HasSubstr("beyond what a double can hold"));
  // With slashes or a time they are text: too many to be categories.
  std::string many = "when,size,y\n";
  for (int day = 1; day <= 28; ++day)
    many += std::to_string(day) + "/01/2024,1," + std::to_string(day % 2) + "\n";
  many += "1/01/2024,2,1\n";
  EXPECT_THAT(message_of([&] { read("a.csv", many); }),
              AllOf(HasSubstr("28 different texts in 29 rows"), HasSubstr("it looks like a date")));
}

// As pandas writes columns of bool, which it hands over as numbers.
TEST_F(TableKinds, TrueAndFalseAreNumbersWhereTheTrainingFileHasNumbers) {
  const std::string train = folder_.put("train.csv", "flag,size,y\n1,5,0\n0,6,1\n1,7,1\n");
  const auto second = [&](const std::string& text) {
    return read_files({train, folder_.put("new.csv", text)}).at(1).features.dense;
  };
  EXPECT_TRUE(second("flag,size,y\nTrue,5,0\nfalse,6,1\n").equal(rows({1, 5, 0, 6}, 2)));
  EXPECT_THAT(notes_, ElementsAre(folder_.at("new.csv") +
                                  ": True and False in column 0 ('flag') are read as 1 and 0, because " +
                                  train + " has numbers there"));
  for (const std::string mixed : {"flag,size,y\nTrue,5,0\n0,6,1\n", "flag,size,y\n0,5,0\nTrue,6,1\n"}) {
    EXPECT_THAT(message_of([&] { second(mixed); }),
                HasSubstr("line 3: expected only numbers, or only True and False, in column 0 ('flag')"));
  }
}

TEST_F(TableKinds, TabsUnderTheNameOfCommas) {
  const LabelledFeatures table = read("tabs.csv", "a\tb\ty\n1,5\t2\t0\n2,5\t3\t1\n");
  EXPECT_TRUE(table.features.dense.equal(rows({1.5F, 2.0F, 2.5F, 3.0F}, 2)));
  EXPECT_THAT(notes_, ElementsAre(folder_.at("tabs.csv") + ": fields are separated by tabs",
                                  folder_.at("tabs.csv") + ": decimals are written with commas"));
  // A decimal comma that comes late is one too.
  std::string late = "a;b;y\n";
  for (int i = 0; i < 300; ++i) late += "1;2;0\n";
  EXPECT_EQ(read("late.csv", late + "2,5;3;1\n").features.dense[300][0].item<float>(), 2.5F);
}

TEST_F(TableKinds, IdsCategoriesAndMissingValues) {
  FeatureFileOptions options{.label_column = "Survived", .drop = {"Name"}, .missing = "mean"};
  const LabelledFeatures table = read("titanic.csv", titanic, options);
  EXPECT_THAT(table.names,
              ElementsAre("Pclass", "Sex=female", "Sex=male", "Age", "Embarked=C", "Embarked=S"));
  const float age = (22.0F + 38 + 35) / 3, third = 1.0F / 3;
  EXPECT_TRUE(table.features.dense.allclose(rows({3, 0, 1, 22,  0,     1,  //
                                                  1, 1, 0, 38,  1,     0,  //
                                                  3, 1, 0, age, 0,     1,  //
                                                  1, 1, 0, 35,  third, 2 * third},
                                                 6)));
  EXPECT_TRUE(table.labels.equal(whole({0, 1, 1, 1})));
  const std::string file = folder_.at("titanic.csv");
  EXPECT_THAT(notes_,
              ElementsAre(file + ": column 0 ('PassengerId') holds a different value in every row and is "
                                 "left out as an id; --keep PassengerId takes it",
                          file + ": 2 missing values became the means of their columns"));
  options.keep = {"PassengerId"};
  EXPECT_EQ(read("titanic.csv", titanic, options).names[0], "PassengerId");
  options.missing = "drop";
  const LabelledFeatures dropped = read("titanic.csv", titanic, options);
  EXPECT_TRUE(dropped.rows.equal(whole({0, 1})));
  EXPECT_TRUE(dropped.labels.equal(whole({0, 1})));
  EXPECT_THAT(notes_.back(), HasSubstr("2 of 4 rows have missing values and are left out"));
  options.missing = "error";
  EXPECT_THAT(
      message_of([&] { read("titanic.csv", titanic, options); }),
      HasSubstr("titanic.csv: line 4: expected a value in every field, found '' in column 5 ('Age'), and 2 "
                "missing values in all"));
  options.drop = {"Nmae"};
  EXPECT_THAT(message_of([&] { read("titanic.csv", titanic, options); }),
              HasSubstr("expected a dropped column 'Nmae', found 7 columns of other names: 'PassengerId', "));
}

TEST_F(TableKinds, OtherFilesFollowTheTrainingFile) {
  const std::string train =
      folder_.put("train.csv", "id,colour,size,class\n1,red,1,cat\n2,blue,2,dog\n3,red,,dog\n");
  // Another order, other ids, a category and a separator of its own.
  const std::string test = folder_.put("test.csv", "class;size;colour\ndog;;red\ncat;5;green\n");
  const auto sets = read_files({train, test}, {.missing = "mean"});
  EXPECT_TRUE(sets[0].features.dense.equal(rows({0, 1, 1, 1, 0, 2, 0, 1, 1.5F}, 3)));
  EXPECT_TRUE(sets[1].features.dense.equal(rows({0, 1, 1.5F, 0, 0, 5}, 3)));
  EXPECT_TRUE(sets[1].labels.equal(whole({1, 0})));
  EXPECT_THAT(notes_,
              ::testing::Contains(test + ": 1 rows have in column 2 ('colour') a category that " + train +
                                  " does not have, such as 'green'; they count as none of its categories"));
  EXPECT_THAT(notes_, ::testing::Contains(test + ": 1 missing values became the means of " + train));
  const auto refusal = [&](const std::string& text) {
    return message_of([&] { read_files({train, folder_.put("other.csv", text)}, {.missing = "mean"}); });
  };
  EXPECT_THAT(refusal("colour,class\nred,cat\n"), HasSubstr("found no column 'size'"));
  EXPECT_THAT(refusal("colour,size,weight,class\nred,1,2,cat\n"),
              HasSubstr("a column 'weight' that it does not have"));
  EXPECT_THAT(refusal("colour,size,class\nred,1,cow\n"),
              HasSubstr("other.csv: line 2: expected a label of " + train +
                        " in column 2 ('class') (cat, dog), found 'cow'"));
  EXPECT_THAT(
      refusal("colour,size,class\nred,big,cat\n"),
      HasSubstr("line 2: expected a finite number in column 1 ('size'), as in " + train + ", found 'big'"));
}

TEST_F(TableKinds, NamesInAFileOfLabels) {
  const std::string x = folder_.put("x.csv", "1,2\n3,4\n5,6\n"), y = folder_.put("y.txt", "cat\ndog\ncat\n");
  const auto sets = read_labelled_files({{x, y}, {x, folder_.put("z.txt", "dog\ndog\ncat\n")}});
  EXPECT_THAT(sets[0].label_names, ElementsAre("cat", "dog"));
  EXPECT_TRUE(sets[0].labels.equal(whole({0, 1, 0})));
  EXPECT_TRUE(sets[1].labels.equal(whole({1, 1, 0})));
  EXPECT_THAT(message_of([&] {
                read_labelled_files({{x, y}, {x, folder_.put("z.txt", "dog\ncow\ndog\n")}});
              }),
              HasSubstr("found 'cow'"));
}

TEST_F(TableKinds, HeadersOfPandasAndTablesOfLettersAlone) {
  // Columns that nobody named are counted, and the rows too.
  const LabelledFeatures counted = read("pandas.csv", ",0,1,class\n0,5.5,2,a\n1,6,3,b\n");
  EXPECT_THAT(counted.names, ElementsAre("0", "1"));
  EXPECT_TRUE(counted.features.dense.equal(rows({5.5F, 2, 6, 3}, 2)));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("column 0 ('') holds a different value in every row")));
  // The mushrooms of the UCI archive have no header: a letter comes twice.
  const LabelledFeatures letters =
      read("mushroom.csv", "p,x,s,n,p\ne,x,s,y,a\ne,b,s,w,l\n", {.label_column = "0"});
  EXPECT_EQ(letters.labels.numel(), 3);
  EXPECT_THAT(letters.label_names, ElementsAre("e", "p"));
  EXPECT_EQ(letters.features.dense.size(1), 2 + 1 + 3 + 3);
}

TEST_F(TableKinds, TheSchemaGoesThroughJsonAndReadsNewRows) {
  const std::string train =
      folder_.put("train.csv", "id,colour,size,class\n1,red,1,cat\n2,blue,2,dog\n3,red,4,dog\n");
  const TableSchema schema = schema_of(
      nlohmann::ordered_json::parse(schema_json(read_files({train})[0].schema).dump()), "model.json");
  const LabelledFeatures fresh = read_new_examples(folder_.put("new.tsv", "size\tcolour\n7\tblue\n"), schema);
  EXPECT_TRUE(fresh.features.dense.equal(rows({1, 0, 7}, 3)));
  EXPECT_FALSE(fresh.labels.defined());
  EXPECT_TRUE(read_new_examples(train, schema).labels.equal(whole({0, 1, 1})));
  EXPECT_THAT(
      message_of([&] { read_new_examples(folder_.put("short.csv", "size\n7\n"), schema); }),
      HasSubstr("short.csv: line 1: expected the columns of " + train + ", found no column 'colour'"));
  nlohmann::ordered_json damaged = schema_json(schema);
  damaged["columns"][1]["means"] = "none";
  EXPECT_THAT(message_of([&] { schema_of(damaged, "model.json"); }),
              HasSubstr("model.json: expected a list as \"means\" in the model's schema"));
}

TEST_F(TableKinds, OptionsOfTablesAreRefusedForOtherFiles) {
  const std::string svm = folder_.put("a.svm", "1 1:1\n-1 2:1\n");
  EXPECT_THAT(message_of<std::invalid_argument>([&] { read_files({svm}, {.missing = "mean"}); }),
              HasSubstr("missing: applies to tables (CSV, TSV) only; " + svm + " is not a table"));
}

}  // namespace
}  // namespace bilevel::test
