// Split files of a search, JSON.
#include "bilevel/data/search_split.h"

#include <ATen/ATen.h>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

constexpr int64_t images = 100;

int give_search_split(std::string_view bytes) {
  return taken_file(path_of(bytes), [](const auto& file) {
    const SearchSplit split = read_search_split(file, images);
    require(split.train.numel() + split.valid.numel() <= images, "split: more positions than images");
  });
}

const Register search_split_target("search_split", give_search_split);

}  // namespace
}  // namespace bilevel::fuzz
