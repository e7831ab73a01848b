// Finds and reads the posts of 20 Newsgroups, in a folder or an archive.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <tuple>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/newsgroups.h"
#include "bilevel/data/tar.h"

namespace bilevel {
namespace {

constexpr std::string_view train_folder = "20news-bydate-train";
constexpr std::string_view test_folder = "20news-bydate-test";
constexpr int64_t largest_post = int64_t{1} << 24;     // the longest has 160 kB
constexpr int64_t largest_archive = int64_t{1} << 30;  // the real one has 50 MB

std::vector<std::string> entries(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(folder.c_str()), ::closedir);
  if (!handle) {
    const int reason = errno;
    throw_file_error(
        folder, reason,
        fmt::format("byte 0: expected a folder, found {}; it should hold {}/GROUP/ID and {}/GROUP/ID",
                    std::strerror(reason), train_folder, test_folder));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(handle.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with('.')) names.emplace_back(name);
  }
  return names;
}

std::vector<Post> posts_in(const std::string& folder, int64_t& room) {
  std::vector<Post> posts;
  for (const std::string& group : entries(folder)) {
    const std::string inside = fmt::format("{}/{}", folder, group);
    for (const std::string& id : entries(inside)) {
      const std::string path = fmt::format("{}/{}", inside, id);
      posts.push_back({group, id, read_file(path, std::min(largest_post, room))});
      room -= static_cast<int64_t>(posts.back().text.size());
    }
  }
  return posts;
}

// ".../20news-bydate-train/GROUP/ID" into its last three parts.
bool split_name(std::string_view name, std::string_view& set, Post& post) {
  const size_t last = name.rfind('/');
  if (last == std::string_view::npos || last == 0) return false;
  const size_t middle = name.rfind('/', last - 1);
  if (middle == std::string_view::npos) return false;
  const size_t before = middle == 0 ? std::string_view::npos : name.rfind('/', middle - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  set = name.substr(begin, middle - begin);
  post.group = name.substr(middle + 1, last - middle - 1);
  post.id = name.substr(last + 1);
  return !post.group.empty() && !post.id.empty() && !post.id.starts_with('.');
}

NewsgroupPosts posts_of_archive(const std::string& path) {
  NewsgroupPosts posts;
  const std::unique_ptr<ByteSource> source = open_bytes(path, largest_archive);
  TarReader tar(*source);
  TarEntry entry;
  while (tar.next(entry)) {
    Post post;
    std::string_view set;
    if (!entry.regular || !split_name(entry.name, set, post)) continue;
    if (set != train_folder && set != test_folder) continue;
    post.text = tar.content(largest_post);
    (set == train_folder ? posts.train : posts.test).push_back(std::move(post));
  }
  return posts;
}

void sort_posts(const std::string& path, std::string_view set, std::vector<Post>& posts) {
  if (posts.empty()) {
    byte_error(path, 0, fmt::format("posts in {}/GROUP/ID", set), "none",
               "is it 20news-bydate, the folder or the tar?");
  }
  const auto key = [](const Post& post) { return std::tie(post.group, post.id); };
  std::sort(posts.begin(), posts.end(), [&](const Post& a, const Post& b) { return key(a) < key(b); });
  const auto twice = std::adjacent_find(posts.begin(), posts.end(),
                                        [&](const Post& a, const Post& b) { return key(a) == key(b); });
  if (twice != posts.end()) {
    byte_error(path, 0, "every post once", fmt::format("{}/{}/{} twice", set, twice->group, twice->id),
               "is it the original archive?");
  }
}

}  // namespace

NewsgroupPosts read_newsgroup_posts(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0) no_file_error(path);
  NewsgroupPosts posts;
  if (S_ISDIR(status.st_mode)) {
    int64_t room = largest_archive;
    posts.train = posts_in(fmt::format("{}/{}", path, train_folder), room);
    posts.test = posts_in(fmt::format("{}/{}", path, test_folder), room);
  } else {
    posts = posts_of_archive(path);
  }
  sort_posts(path, train_folder, posts.train);
  sort_posts(path, test_folder, posts.test);
  return posts;
}

}  // namespace bilevel
