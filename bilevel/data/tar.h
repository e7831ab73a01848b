#pragma once
// Tar archives as streams: ustar, with GNU's and POSIX's (pax) long names and large sizes. It hands out names
// and bytes and never writes a file, so that no name in an archive can reach outside.

#include <cstdint>
#include <string>

#include "bilevel/data/byte_source.h"

namespace bilevel {

struct TarEntry {
  std::string name;
  int64_t size = 0;
  bool regular = false;  // a plain file; folders, links and devices are not
};

class TarReader {
 public:
  explicit TarReader(ByteSource& source) : source_(source) {}
  // Goes to the next entry, over what was not read of the last; false at the archive's end mark. Throws
  // std::runtime_error for an archive that is cut short or damaged.
  bool next(TarEntry& entry);
  size_t read(char* to, size_t count);   // of the current entry; fewer than count only at its end
  std::string content(int64_t largest);  // the rest of the current entry; throws if it is larger

 private:
  void skip(int64_t count);
  std::string extended(int64_t size);

  ByteSource& source_;
  int64_t left_ = 0;     // bytes of the current entry that were not read
  int64_t padding_ = 0;  // that follow it, to a whole block
};

}  // namespace bilevel
