#pragma once
// Zip archives made by hand, after PKWARE's APPNOTE: no libzip is needed to make one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/data/files.h"

namespace bilevel::test {

struct ZipEntry {
  std::string name;
  std::string content;
  bool deflated = false;       // as deflate's stored blocks
  int64_t declared_size = -1;  // the content's, unless it is to lie
  uint32_t flags = 0;          // 1: encrypted
  uint32_t method = 0;         // of compression, unless deflated
};

inline std::string zip_file(const std::vector<ZipEntry>& entries) {
  std::string file, directory;
  for (const ZipEntry& entry : entries) {
    std::string stored = entry.content;
    if (entry.deflated) {
      const std::string zlib = gzip(entry.content);  // its deflate stream, without head and tail
      stored = zlib.substr(10, zlib.size() - 18);
    }
    const auto size = static_cast<uint32_t>(
        entry.declared_size >= 0 ? entry.declared_size : static_cast<int64_t>(entry.content.size()));
    const std::string common =
        little_endian(20, 2) + little_endian(entry.flags, 2) +
        little_endian(entry.deflated ? 8 : entry.method, 2) + little_endian(0, 4) +
        little_endian(crc32(entry.content), 4) + little_endian(static_cast<uint32_t>(stored.size()), 4) +
        little_endian(size, 4) + little_endian(static_cast<uint32_t>(entry.name.size()), 2) +
        little_endian(0, 2);
    directory += "PK\1\2" + little_endian(20, 2) + common + little_endian(0, 2) + little_endian(0, 2) +
                 little_endian(0, 2) + little_endian(0, 4) +
                 little_endian(static_cast<uint32_t>(file.size()), 4) + entry.name;
    file += "PK\3\4" + common + entry.name + stored;
  }
  const auto count = static_cast<uint32_t>(entries.size());
  return file + directory + "PK\5\6" + little_endian(0, 4) + little_endian(count, 2) +
         little_endian(count, 2) + little_endian(static_cast<uint32_t>(directory.size()), 4) +
         little_endian(static_cast<uint32_t>(file.size()), 4) + little_endian(0, 2);
}

}  // namespace bilevel::test
