// Labelled examples from every format: the same examples give the same numbers whichever file holds them, and
// every wrong file is named with what was expected and found.
#include "bilevel/data/feature_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "bilevel/data/gzip.h"
#include "bilevel/data/npy.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LabelledFeatures read(const std::string& features, const std::string& labels = "",
                      const FeatureFileOptions& options = {}) {
  return read_labelled_files({{features, labels}}, options).at(0);
}
std::string refusal(const std::string& features, const std::string& labels = "") {
  return message_of([&] { read(features, labels); });
}

const Tensor expected = at::tensor({1.0F, 0.0F, 0.5F, 0.0F, 2.0F, -3.0F}).reshape({3, 2});

TEST(FeatureFiles, TheSameExamplesFromEveryFormat) {
  const TemporaryFolder folder;
  write_npy(folder.at("x.npy"), expected.to(at::kDouble));
  write_npy(folder.at("y.npy"), at::tensor({7, 4, 7}));
  const std::string lines = folder.put("y.txt", "7\n4\n7\n");
  const std::pair<std::string, std::string> files[] = {
      {folder.at("x.npy"), folder.at("y.npy")},
      {folder.at("x.npy"), lines},
      {folder.put("x.csv", "1,0\n0.5,0\n2,-3\n"), lines},
      {folder.put("with_labels.csv", "a,b,class\n1,0,7\n0.5,0,4\n2,-3,7\n"), ""},
      {folder.put("table", "1\t0\t7\n0.5\t0\t4\n2\t-3\t7\n"), ""},
      {folder.put("x.tsv", "1\t0\t7\n0.5\t0\t4\n2\t-3\t7\n"), ""},
  };
  for (const auto& [features, labels] : files) {
    SCOPED_TRACE(features);
    const LabelledFeatures examples = read(features, labels);
    EXPECT_TRUE(examples.features.dense.equal(expected));
    EXPECT_TRUE(examples.labels.equal(at::tensor({7, 4, 7}).to(at::kLong)));
    EXPECT_EQ(examples.labels_from, labels.empty() ? features : labels);
    EXPECT_TRUE(examples.image.empty());
  }
  for (const char* name : {"x.svm", "no ending"}) {
    const LabelledFeatures sparse = read(folder.put(name, "7 1:1\n4 1:0.5 # a comment\n7 1:2 2:-3\n"));
    ASSERT_TRUE(sparse.features.is_sparse());
    EXPECT_TRUE(to_dense(sparse.features.sparse).equal(expected));
    EXPECT_TRUE(sparse.labels.equal(at::tensor({7.0, 4.0, 7.0}, at::kDouble)));
  }
  FeatureFileOptions first{.label_column = "first", .dtype = at::kDouble};
  const LabelledFeatures moved = read(folder.put("first.csv", "7,1,0\n4,0.5,0\n7,2,-3\n"), "", first);
  EXPECT_TRUE(moved.features.dense.equal(expected.to(at::kDouble)));
}

TEST(FeatureFiles, BytesAreScaledAndImagesKeepTheirSizes) {
  const TemporaryFolder folder;
  const std::string images = idx({2, 1, 3}, std::string("\0\x33\xff\xff\0\0", 6));
  const std::string labels = folder.put("labels", idx({2}, std::string("\1\0", 2)));
  std::vector<std::string> paths{folder.put("images", images), folder.put("train-images-idx3-ubyte", images)};
  if (has_gzip()) paths.push_back(folder.put("images.gz", gzip(images)));
  for (const std::string& path : paths) {
    const LabelledFeatures examples = read(path, labels);
    EXPECT_TRUE(
        examples.features.dense.equal(at::tensor({0.0F, 0.2F, 1.0F, 1.0F, 0.0F, 0.0F}).reshape({2, 3})));
    EXPECT_EQ(examples.image, (std::vector<int64_t>{1, 3}));
    EXPECT_TRUE(examples.labels.equal(at::tensor({1, 0}).to(at::kLong)));
  }
}

TEST(FeatureFiles, SparseFilesThatBelongTogetherShareTheirColumns) {
  const TemporaryFolder folder;
  const auto sets = read_labelled_files({{folder.put("a.svm", "1 1:1\n-1 2:1\n"), ""},
                                         {folder.put("b.svm", "1 5:2\n"), folder.put("b", "4\n")}});
  EXPECT_EQ(sets[0].features.columns(), 5);
  EXPECT_EQ(sets[1].features.columns(), 5);
  EXPECT_EQ(sets[1].labels.item<int64_t>(), 4);
}

TEST(FeatureFiles, AppendsOnesToDenseAndSparseAlike) {
  const Tensor dense = at::tensor({1.0F, 0.0F, 0.0F, 0.0F, 2.0F, 3.0F}).reshape({3, 2});
  const Tensor with_ones = at::cat({dense, at::ones({3, 1})}, 1);
  EXPECT_TRUE(append_ones({.dense = dense, .sparse = {}}).dense.equal(with_ones));
  const Features sparse = append_ones({.dense = {}, .sparse = from_dense(dense)});
  sparse.sparse.validate();
  EXPECT_TRUE(to_dense(sparse.sparse).equal(with_ones));
}

TEST(FeatureFiles, WholeNumbersAreLabelsInAnyType) {
  const TemporaryFolder folder;
  const std::string good = folder.put("good.csv", "1,0\n0.5,0\n2,2\n");
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kLong, at::kInt, at::kByte}) {
    write_npy(folder.at("y.npy"), at::tensor({7, 4, 7}).to(type));
    EXPECT_TRUE(read(good, folder.at("y.npy")).labels.equal(at::tensor({7, 4, 7}).to(at::kLong))) << type;
  }
  for (const double wrong :
       {0.5, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    write_npy(folder.at("y.npy"), at::tensor({7.0, wrong, 7.0}, at::kDouble));
    EXPECT_THAT(refusal(good, folder.at("y.npy")),
                AllOf(HasSubstr(fmt::format("y.npy: expected labels as whole numbers, found {} as label of "
                                            "example 1, and 1 such labels",
                                            wrong)),
                      HasSubstr("number the classes"), Not(HasSubstr("swapped"))));
  }
}

TEST(FeatureFiles, TablesAreMatchedByTheirHeaders) {
  const TemporaryFolder folder;
  const std::string train = folder.put("train.csv", "height,weight,class\n1,2,0\n3,4,1\n");
  const std::string valid = folder.put("valid.csv", "class,weight,height\n1,40,30\n");
  const std::string test = folder.put("test.tsv", "weight\theight\n400\t300\n");
  const std::string labels = folder.put("labels", "1\n");
  const auto sets = read_labelled_files({{train, ""}, {valid, ""}, {test, labels}});
  EXPECT_TRUE(sets[0].features.dense.equal(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({2, 2})));
  EXPECT_TRUE(sets[1].features.dense.equal(at::tensor({30.0F, 40.0F}).view({1, 2})));
  EXPECT_TRUE(sets[2].features.dense.equal(at::tensor({300.0F, 400.0F}).view({1, 2})));
  EXPECT_TRUE(sets[1].labels.equal(at::tensor({1}).to(at::kLong)));
  EXPECT_EQ(sets[1].names, (std::vector<std::string>{"height", "weight"}));
  const auto together = [&](const std::string& text) {
    return message_of([&] { read_labelled_files({{train, ""}, {folder.put("other.csv", text), ""}}); });
  };
  EXPECT_THAT(together("weight,length,class\n1,2,0\n"),
              HasSubstr("other.csv: line 1: expected the columns of " + train +
                        ", found no column 'height' and a column 'length' that it does not have"));
  EXPECT_THAT(together("label,height,weight\n0,1,2\n"), HasSubstr("a column 'label' that it does not have"));
}

// Bytes are divided by 255 and other numbers are not.
TEST(FeatureFiles, BytesAndOtherNumbersAreNotMixed) {
  const TemporaryFolder folder;
  const Tensor numbers = at::tensor({0, 51, 255, 102}).view({2, 2});
  write_npy(folder.at("bytes.npy"), numbers.to(at::kByte));
  write_npy(folder.at("floats.npy"), numbers.to(at::kFloat));
  write_npy(folder.at("integers.npy"), numbers.to(at::kLong));
  const std::string bytes = folder.at("bytes.npy"), labels = folder.put("labels", "1\n0\n");
  const std::string pixels = folder.put("pixels", idx({2, 2}, "abcd"));
  const std::string table = folder.put("table.csv", "0,51\n255,102\n");
  const auto together = [&](const std::vector<std::string>& paths) {
    std::vector<LabelledFile> files;
    for (const std::string& path : paths) files.push_back({path, labels});
    return message_of([&] { read_labelled_files(files); });
  };
  EXPECT_THAT(together({bytes, folder.at("floats.npy")}),
              AllOf(HasSubstr("floats.npy: expected bytes (uint8) as in " + bytes + ", found Float"),
                    HasSubstr("divided by 255"), HasSubstr(bytes + " as X.astype('float32') / 255")));
  EXPECT_THAT(together({folder.at("floats.npy"), bytes}),
              AllOf(HasSubstr("bytes.npy: expected numbers as in " + folder.at("floats.npy")),
                    HasSubstr("found bytes (uint8)"), HasSubstr(bytes + " as X.astype('float32') / 255")));
  EXPECT_THAT(together({bytes, bytes, folder.at("integers.npy")}), HasSubstr("integers.npy: expected bytes"));
  EXPECT_THAT(together({pixels, table}), HasSubstr("table.csv: expected bytes"));
  EXPECT_EQ(read_labelled_files({{bytes, labels}, {pixels, labels}}).size(), 2U);
  EXPECT_EQ(read_labelled_files(
                {{folder.at("floats.npy"), labels}, {folder.at("integers.npy"), labels}, {table, labels}})
                .size(),
            3U);
}

TEST(FeatureFiles, SaysWhatIsWrongAndWhere) {
  const TemporaryFolder folder;
  const std::string good = folder.put("good.csv", "1,0,7\n0.5,0,4\n");
  const std::string labels = folder.put("labels", "1\n0\n");
  EXPECT_THAT(refusal(folder.at("nowhere.csv")), HasSubstr(folder.at("nowhere.csv")));
  EXPECT_THAT(refusal(folder.put("empty", "")), AllOf(HasSubstr("empty file"), HasSubstr("svmlight")));
  EXPECT_THAT(refusal(folder.put("picture.png", "\x89PNG....")), AllOf(HasSubstr("IDX"), HasSubstr("PNG")));
  EXPECT_THAT(refusal(folder.put("word.csv", "1,2,0\n3,many,1\n"), ""),
              AllOf(HasSubstr("line 2"), HasSubstr("column 1"), HasSubstr("many")));
  EXPECT_THAT(refusal(folder.put("nan.csv", "1,2,0\n3,nan,1\n")),
              AllOf(HasSubstr("line 2"), HasSubstr("nan")));
  EXPECT_THAT(refusal(folder.put("cut.idx", idx({2, 3}, "abcd")), labels),
              AllOf(HasSubstr("cut.idx: byte 12"), HasSubstr("6 bytes")));
  EXPECT_THAT(refusal(folder.put("long.idx", idx({2, 1}, "abcd")), labels), HasSubstr("long.idx: byte 14"));
  EXPECT_THAT(refusal(folder.put("x.idx", idx({2, 2}, "abcd"))), HasSubstr("a file of labels"));
  EXPECT_THAT(refusal(folder.put("y.idx", idx({2}, "ab")), labels), HasSubstr("swapped"));
  EXPECT_THAT(refusal(good, folder.put("wide", "1,0\n0,1\n")),
              AllOf(HasSubstr("one label per line"), HasSubstr("2 columns")));
  EXPECT_THAT(refusal(good, folder.put("three", "1\n0\n1\n")),
              AllOf(HasSubstr("2 labels"), HasSubstr("found 3")));
  write_npy(folder.at("nan.npy"),
            at::tensor({1.0, std::numeric_limits<double>::quiet_NaN()}).reshape({2, 1}));
  EXPECT_THAT(refusal(folder.at("nan.npy"), labels),
              AllOf(HasSubstr("nan"), HasSubstr("example 1, column 0")));
  write_npy(folder.at("huge.npy"), at::tensor({1e300, 0.0}, at::kDouble).reshape({2, 1}));
  EXPECT_THAT(refusal(folder.at("huge.npy"), labels), AllOf(HasSubstr("Float"), HasSubstr("example 0")));
  write_npy(folder.at("one_hot.npy"), at::ones({2, 2}));
  EXPECT_THAT(refusal(good, folder.at("one_hot.npy")),
              AllOf(HasSubstr("One-hot"), HasSubstr("(2, 2)"), HasSubstr("Y.argmax(1)")));
  write_npy(folder.at("column.npy"), at::ones({2, 1}));
  EXPECT_THAT(refusal(good, folder.at("column.npy")),
              AllOf(HasSubstr("(2, 1)"), HasSubstr("y.reshape(-1)"), Not(HasSubstr("swapped"))));
  const auto together = [&](const std::string& path) {
    return message_of([&] { read_labelled_files({{good, ""}, {path, ""}}); });
  };
  EXPECT_THAT(together(folder.put("narrow.csv", "1,0\n0,1\n")),
              AllOf(HasSubstr("expected 3 columns, as in " + good), HasSubstr("found 2")));
  EXPECT_THAT(together(folder.put("b.svm", "1 1:2\n")), AllOf(HasSubstr("b.svm"), HasSubstr("dense")));
}

}  // namespace
}  // namespace bilevel::test
