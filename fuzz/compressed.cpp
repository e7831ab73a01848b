// What every reader of plain or compressed files stands on: gzip and xz streams, with a limit.
#include "bilevel/data/byte_source.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

constexpr int64_t limit = int64_t{1} << 20;

int give_compressed(std::string_view bytes) {
  return taken_file(path_of(bytes), [](const auto& file) {
    const std::string content = read_file(file, limit);
    require(content.size() <= size_t{limit}, "a content beyond its limit");
  });
}

const Register compressed_target("compressed", give_compressed);

}  // namespace
}  // namespace bilevel::fuzz
