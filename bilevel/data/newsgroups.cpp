#include "bilevel/data/newsgroups.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "bilevel/data/newsgroup_text.h"

namespace bilevel {
namespace {

using Vocabulary = std::unordered_map<std::string, int32_t>;

void tokens_of(const Post& post, bool strip, const std::function<void(const std::string&)>& use) {
  if (!strip) return for_each_token(post.text, use);
  for_each_token(without_quotes(without_footer(without_header(post.text))), use);
}

// Words in order of appearance, for now; `grow` adds those that are new.
std::vector<std::vector<int32_t>> words_of(const std::vector<Post>& posts, bool strip, bool grow,
                                           Vocabulary& vocabulary) {
  std::vector<std::vector<int32_t>> words(posts.size());
  for (size_t i = 0; i < posts.size(); ++i) {
    tokens_of(posts[i], strip, [&](const std::string& token) {
      auto found = vocabulary.find(token);
      if (found == vocabulary.end()) {
        if (!grow) return;
        found = vocabulary.emplace(token, static_cast<int32_t>(vocabulary.size())).first;
      }
      words[i].push_back(found->second);
    });
  }
  return words;
}

SparseMatrix counts_of(std::vector<std::vector<int32_t>> words, const std::vector<int32_t>& column_of) {
  std::vector<int64_t> row_start{0};
  std::vector<int32_t> column;
  std::vector<double> count;
  for (std::vector<int32_t>& post : words) {
    for (int32_t& word : post) word = column_of[static_cast<size_t>(word)];
    std::sort(post.begin(), post.end());
    for (size_t i = 0; i < post.size(); ++i) {
      if (i > 0 && post[i] == post[i - 1]) {
        count.back() += 1;
      } else {
        column.push_back(post[i]);
        count.push_back(1);
      }
    }
    row_start.push_back(static_cast<int64_t>(column.size()));
  }
  SparseMatrix matrix;
  matrix.rows = static_cast<int64_t>(words.size());
  matrix.columns = static_cast<int64_t>(column_of.size());
  matrix.row_start = at::tensor(row_start, at::TensorOptions().dtype(at::kLong));
  matrix.column = at::tensor(column, at::TensorOptions().dtype(at::kInt));
  matrix.value = at::tensor(count, at::TensorOptions().dtype(at::kDouble));
  return matrix;
}

Tensor labels_of(const std::vector<Post>& posts, const std::vector<std::string>& groups) {
  std::vector<int64_t> labels;
  for (const Post& post : posts) {
    const auto found = std::lower_bound(groups.begin(), groups.end(), post.group);
    if (found == groups.end() || *found != post.group) {
      throw std::runtime_error(fmt::format(
          "20 Newsgroups: test post {}/{}: expected a group with training posts, found none; is a "
          "folder missing?",
          post.group, post.id));
    }
    labels.push_back(found - groups.begin());
  }
  return at::tensor(labels, at::TensorOptions().dtype(at::kLong));
}

}  // namespace

Newsgroups count_words(const NewsgroupPosts& posts, const NewsgroupsOptions& options) {
  if (options.dtype != at::kFloat && options.dtype != at::kDouble) {
    throw std::invalid_argument(
        fmt::format("newsgroups: dtype = {}: must be float or double", at::toString(options.dtype)));
  }
  Newsgroups result;
  for (const Post& post : posts.train) result.groups.push_back(post.group);
  std::sort(result.groups.begin(), result.groups.end());
  result.groups.erase(std::unique(result.groups.begin(), result.groups.end()), result.groups.end());
  result.train_labels = labels_of(posts.train, result.groups);
  result.test_labels = labels_of(posts.test, result.groups);

  Vocabulary vocabulary;
  auto train_words = words_of(posts.train, options.strip, true, vocabulary);
  auto test_words = words_of(posts.test, options.strip, false, vocabulary);
  // Sorted by character: std::string compares bytes as unsigned, which for latin-1 are the characters.
  std::vector<const Vocabulary::value_type*> sorted;
  for (const auto& word : vocabulary) sorted.push_back(&word);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  std::vector<int32_t> column_of(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    column_of[static_cast<size_t>(sorted[i]->second)] = static_cast<int32_t>(i);
    result.features.push_back(latin1_to_utf8(sorted[i]->first));
  }
  result.train = counts_of(std::move(train_words), column_of);
  result.test = counts_of(std::move(test_words), column_of);

  if (options.weights == WordWeights::tf_idf) {
    const Tensor with = document_frequency(result.train).to(at::kDouble);
    const Tensor idf = ((1 + static_cast<double>(result.train.rows)) / (1 + with)).log() + 1;
    result.train = scale_columns(result.train, idf);
    result.test = scale_columns(result.test, idf);
  }
  for (SparseMatrix* matrix : {&result.train, &result.test}) {
    if (options.weights != WordWeights::counts) *matrix = unit_rows(*matrix);
    *matrix = to_dtype(*matrix, options.dtype);
  }
  return result;
}

Newsgroups read_newsgroups(const std::string& path, const NewsgroupsOptions& options) {
  return count_words(read_newsgroup_posts(path), options);
}

}  // namespace bilevel
