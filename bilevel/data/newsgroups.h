#pragma once
// 20 Newsgroups by date (http://qwone.com/~jason/20Newsgroups) as sparse word counts: the text problem of the
// bilevel papers. The vocabulary comes from the training posts.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/csr.h"

namespace bilevel {

struct Post {
  std::string group;
  std::string id;
  std::string text;  // latin-1 bytes
};

struct NewsgroupPosts {
  std::vector<Post> train, test;  // by group, then by id as text
};

enum class WordWeights {
  counts,
  unit_counts,  // counts, every post divided by its norm
  tf_idf        // counts times log((1 + posts) / (1 + posts with the word)) + 1, then unit posts
};

struct NewsgroupsOptions {
  // Without header, footer and quotes a model must read what a post says (101,631 features instead of
  // 130,107).
  bool strip = true;
  WordWeights weights = WordWeights::unit_counts;
  at::ScalarType dtype = at::kFloat;  // float or double
};

// Unlike two ExampleSets always sparse, as words are counted, and with the names of both sides.
struct Newsgroups {
  SparseMatrix train, test;
  Tensor train_labels, test_labels;   // int64, positions in `groups`
  std::vector<std::string> groups;    // sorted
  std::vector<std::string> features;  // sorted by character, in UTF-8: the columns' names
};

// `path` is a folder that holds 20news-bydate-train/GROUP/ID and 20news-bydate-test/GROUP/ID, or a tar of it,
// plain, .gz or .xz. Throws std::runtime_error naming the file and what was expected and found in it.
NewsgroupPosts read_newsgroup_posts(const std::string& path);

Newsgroups count_words(const NewsgroupPosts& posts, const NewsgroupsOptions& options = {});

Newsgroups read_newsgroups(const std::string& path, const NewsgroupsOptions& options = {});

}  // namespace bilevel
