// Tar archives, plain or compressed, as they come and with their checksums put right.
#include "bilevel/data/tar.h"

#include "fuzz/repaired_tar.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

constexpr int64_t largest = int64_t{1} << 20;

void read_tar(const std::string& path) {
  const auto source = open_bytes(path, largest);
  TarReader tar(*source);
  TarEntry entry;
  for (bool whole = true; tar.next(entry); whole = !whole) {
    require(entry.size >= 0, "tar: a negative size");
    if (whole) {
      require(tar.content(largest).size() == static_cast<size_t>(entry.size), "tar: another size");
    } else {
      char first = 0;
      require(tar.read(&first, 1) == (entry.size > 0 ? 1U : 0U), "tar: an entry cut short without a word");
    }
  }
}

int give_tar(std::string_view bytes) {
  return taken_file(path_of(bytes), read_tar) + taken_file(path_of(repaired_tar(bytes)), read_tar);
}

const Register tar_target("tar", give_tar);

}  // namespace
}  // namespace bilevel::fuzz
