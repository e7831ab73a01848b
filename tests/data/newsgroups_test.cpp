#include "bilevel/data/newsgroups.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "bilevel/data/gzip.h"
#include "bilevel/data/newsgroup_text.h"
#include "bilevel/data/xz.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> tokens(std::string_view text) {
  std::vector<std::string> all;
  for_each_token(text, [&](const std::string& token) { all.push_back(token); });
  return all;
}

TEST(NewsgroupText, StripsAsScikitLearnDoes) {
  EXPECT_EQ(without_header("From: me\nTo: you\n\nbody\n\nmore"), "body\n\nmore");
  EXPECT_EQ(without_header("no empty line"), "");
  EXPECT_EQ(without_footer("\nbody\nmore\n--\nme\n"), "body\nmore");
  EXPECT_EQ(without_footer("a\n\nb\n \t- -\nc"), "a");  // "- -" is not only dashes, so the empty line counts
  EXPECT_EQ(without_footer("a\n\nb\n  ---- \nc"), "a\n\nb");
  EXPECT_EQ(without_footer("a\n\xa0\nb"), "a");  // a space of latin-1
  EXPECT_EQ(without_footer("--\nonly\n"), "--\nonly\n");
  EXPECT_EQ(without_footer(" one line "), " one line ");
  EXPECT_EQ(without_footer(""), "");
  EXPECT_EQ(without_quotes("a\n> b\nhe writes:\n|x\n x> y\nIn article 5\nnot In article\nhe said: no\nz\n"),
            "a\n x> y\nnot In article\nz\n");
  EXPECT_EQ(without_quotes("> all"), "");
  EXPECT_EQ(without_quotes(""), "");
}

TEST(NewsgroupText, FindsTokensAsPythonDoes) {
  EXPECT_THAT(tokens("I'm HERE, x_1 a 42 don't"), ElementsAre("here", "x_1", "42", "don"));
  // Python: re.findall(r"\w\w+", "Écolé ×× ½¼ µm Ñß a÷b".lower()), as latin-1
  EXPECT_THAT(tokens("\xc9"
                     "col\xe9 \xd7\xd7 \xbd\xbc \xb5m \xd1\xdf a\xf7"
                     "b"),
              ElementsAre("\xe9"
                          "col\xe9",
                          "\xbd\xbc", "\xb5m", "\xf1\xdf"));
  EXPECT_EQ(latin1_to_utf8("\xe9t\xe9"), "été");
}

const std::vector<std::pair<std::string, std::string>> small{
    {"20news-bydate-train/b.group/10", "Subject: x\n\nred red green\n"},
    {"20news-bydate-train/a.group/9", "Subject: x\n\nblue \xe9t\xe9\n"},
    {"20news-bydate-train/a.group/100", "Subject: x\n\nblue green\n"},
    {"20news-bydate-test/b.group/7", "Subject: x\n\ngreen purple blue blue\n"}};

std::string small_tar() {
  std::string archive = tar_entry("20news-bydate-train/", "", '5');
  for (const auto& [name, text] : small) archive += tar_entry("./" + name, text);
  return archive + tar_entry("README", "no post") + tar_end;
}

void expect_small(const Newsgroups& news) {
  EXPECT_THAT(news.groups, ElementsAre("a.group", "b.group"));
  EXPECT_THAT(news.features, ElementsAre("blue", "green", "red", "été"));
  EXPECT_TRUE(news.train_labels.equal(at::tensor({0, 0, 1}).to(at::kLong)));
  EXPECT_TRUE(news.test_labels.equal(at::tensor({1}).to(at::kLong)));
  const Tensor train = at::tensor({1.F, 1.F, 0.F, 0.F, 1.F, 0.F, 0.F, 1.F, 0.F, 1.F, 2.F, 0.F}).view({3, 4});
  EXPECT_TRUE(to_dense(news.train).equal(train)) << to_dense(news.train);
  EXPECT_TRUE(to_dense(news.test).equal(at::tensor({2.F, 1.F, 0.F, 0.F}).view({1, 4})));
}

TEST(NewsgroupsReader, CountsWordsOfAFolderAndOfATar) {
  const TemporaryFolder folder;
  for (const auto& [name, text] : small) folder.put("news/" + name, text);
  const NewsgroupsOptions counts{.weights = WordWeights::counts};
  expect_small(read_newsgroups(folder.at("news"), counts));
  expect_small(read_newsgroups(folder.put("a.tar", small_tar()), counts));
  if (has_gzip()) expect_small(read_newsgroups(folder.put("a.tar.gz", gzip(small_tar())), counts));
}

TEST(NewsgroupsReader, WeighsWordsByTheirRarity) {
  const TemporaryFolder folder;
  const std::string path = folder.put("a.tar", small_tar());
  const Newsgroups news = read_newsgroups(path, {.weights = WordWeights::tf_idf, .dtype = at::kDouble});
  const double common = std::log(4.0 / 3) + 1, rare = std::log(4.0 / 2) + 1;
  const double norm = std::hypot(common, 2 * rare);
  EXPECT_NEAR(to_dense(news.train)[2][1].item<double>(), common / norm, 1e-15);
  EXPECT_NEAR(to_dense(news.train)[2][2].item<double>(), 2 * rare / norm, 1e-15);
  const Tensor unit = to_dense(read_newsgroups(path, {.dtype = at::kDouble}).test);
  EXPECT_NEAR(unit[0][0].item<double>(), 2 / std::sqrt(5.0), 1e-15);
}

TEST(NewsgroupsReader, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& path) { return message_of([&] { read_newsgroups(path); }); };
  EXPECT_THAT(message(folder.at("missing")), HasSubstr("there is no such file; check the path"));
  EXPECT_THAT(message(folder.path()), AllOf(HasSubstr("20news-bydate-train"), HasSubstr("it should hold")));
  EXPECT_THAT(message(folder.put("a.tar", tar_end)),
              HasSubstr("expected posts in 20news-bydate-train/GROUP/ID"));
  const std::string post = tar_entry(small[0].first, small[0].second);
  EXPECT_THAT(message(folder.put("a.tar", post + tar_end)),
              HasSubstr("20news-bydate-test/GROUP/ID, found none"));
  EXPECT_THAT(
      message(folder.put("a.tar", post + post + tar_entry("20news-bydate-test/b.group/1", "x") + tar_end)),
      HasSubstr("b.group/10 twice"));
  EXPECT_THAT(message(folder.put("a.tar", post + tar_entry("20news-bydate-test/c.group/1", "x") + tar_end)),
              HasSubstr("test post c.group/1"));
}

// A hash of every count with its place, sum (row + 1) (column + 1) count.
int64_t place_hash(const SparseMatrix& matrix) {
  const int64_t* start = matrix.row_start.data_ptr<int64_t>();
  const int32_t* column = matrix.column.data_ptr<int32_t>();
  const double* value = matrix.value.data_ptr<double>();
  int64_t sum = 0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t k = start[row]; k < start[row + 1]; ++k) {
      sum += (row + 1) * (column[k] + 1) * static_cast<int64_t>(value[k]);
    }
  }
  return sum;
}

// The numbers are those of an independent Python script after scikit-learn's rules, run once in Python on the
// same archive.
TEST(NewsgroupsReader, GivesThePapersFeatures) {
  const std::string path = shared_data("20news-bydate.tar.xz");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: ../shared/data/20news-bydate.tar.xz is missing";
  if (!has_xz()) GTEST_SKIP() << "SKIPPED: built without liblzma";
  const NewsgroupPosts posts = read_newsgroup_posts(path);
  EXPECT_EQ(posts.train.size(), 11314U);
  EXPECT_EQ(posts.test.size(), 7532U);

  const Newsgroups news = count_words(posts, {.weights = WordWeights::counts, .dtype = at::kDouble});
  news.train.validate("train");
  news.test.validate("test");
  EXPECT_EQ(news.groups.size(), 20U);
  EXPECT_EQ(news.train.columns, 101631);
  EXPECT_EQ(news.test.columns, 101631);
  EXPECT_EQ(news.train.nonzeros(), 1103627);
  EXPECT_EQ(news.test.nonzeros(), 665738);
  EXPECT_EQ(news.train.value.sum().item<double>(), 2158589);
  EXPECT_EQ(news.test.value.sum().item<double>(), 1241798);
  EXPECT_EQ(place_hash(news.train), 765707058597963);
  EXPECT_EQ(place_hash(news.test), 303313580471708);
  EXPECT_EQ(news.features.front(), "00");
  EXPECT_EQ(news.features[50000], "ingests");
  EXPECT_EQ(news.features.back(), "ýé");
  EXPECT_EQ(news.train_labels[11313].item<int64_t>(), 19);

  const auto the = static_cast<int64_t>(std::find(news.features.begin(), news.features.end(), "the") -
                                        news.features.begin());
  EXPECT_EQ(document_frequency(news.train)[the].item<int64_t>(), 9475);
  const auto weight_of_the = [&](WordWeights weights) {
    const SparseMatrix train = count_words(posts, {.weights = weights, .dtype = at::kDouble}).train;
    return to_dense(select_rows(train, at::zeros({1}, at::TensorOptions().dtype(at::kLong))))[0][the]
        .item<double>();
  };
  EXPECT_NEAR(weight_of_the(WordWeights::unit_counts), 0.6287252942131618, 1e-14);
  EXPECT_NEAR(weight_of_the(WordWeights::tf_idf), 0.28319862835604775, 1e-14);

  const Newsgroups raw =
      count_words(posts, {.strip = false, .weights = WordWeights::counts, .dtype = at::kDouble});
  EXPECT_EQ(raw.train.columns, 130107);
  EXPECT_EQ(raw.train.nonzeros(), 1787565);
  EXPECT_EQ(place_hash(raw.train), 1577909050674394);
  EXPECT_EQ(place_hash(raw.test), 653271883172428);
}

}  // namespace
}  // namespace bilevel::test
