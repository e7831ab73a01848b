#pragma once
// Zip archives (PKWARE's APPNOTE 6.3) by libzip: their members by name, read whole. An archive can promise
// terabytes in a kilobyte, so what the directory declares is checked when the archive is opened, before
// memory is taken for any of it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bilevel {

bool has_zip();  // whether the library was built with libzip

struct ZipLimits {
  int64_t members = 1000000;
  int64_t member_bytes = int64_t{1} << 28;  // of one member
  int64_t total_bytes = int64_t{1} << 32;   // of all of them
};

struct ZipMember {
  std::string name;  // relative, with / between folders, and without . or .. among them
  int64_t size = 0;  // of its content
  bool folder = false;
};

// Throws std::runtime_error naming the archive and the member, and what is wrong: damage (checksums are
// verified), encryption, a compression other than deflate, a name that is absolute, climbs out of the archive
// or comes twice, sizes beyond the limits or beyond what deflate can do, or a build without libzip.
class ZipArchive {
 public:
  explicit ZipArchive(const std::string& path, const ZipLimits& limits = {});
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<ZipMember>& members() const { return members_; }  // in the archive's order
  // The content of members()[position]. One thread at a time.
  std::string read(size_t position) const;

 private:
  struct Handle;
  std::string path_;
  std::vector<ZipMember> members_;
  std::unique_ptr<Handle> handle_;
};

}  // namespace bilevel
