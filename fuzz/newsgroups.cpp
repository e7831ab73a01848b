// 20 Newsgroups: archives of posts, and the text of a post.
#include "bilevel/data/newsgroups.h"

#include "fuzz/repaired_tar.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

void count(const NewsgroupPosts& posts, const NewsgroupsOptions& options) {
  const Newsgroups counted = count_words(posts, options);
  counted.train.validate("train");
  counted.test.validate("test");
}

int give_newsgroups(std::string_view bytes) {
  const auto reader = [](const auto& file) { (void)read_newsgroup_posts(file); };
  int result = taken_file(path_of(bytes), reader);
  const std::string repaired = path_of(repaired_tar(bytes));
  result += taken([&] { count(read_newsgroup_posts(repaired), {}); });
  const Post post{"group", "1", std::string(bytes)};
  count({{post, post}, {post}}, {.weights = WordWeights::tf_idf});
  count({{post}, {post}}, {.strip = false, .dtype = at::kDouble});
  return result;
}

const Register newsgroups_target("newsgroups", give_newsgroups);

}  // namespace
}  // namespace bilevel::fuzz
