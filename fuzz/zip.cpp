// Zip archives: the directory and every member that it lists.
#include "bilevel/data/zip.h"

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

constexpr ZipLimits limits{
    .members = 1000, .member_bytes = int64_t{1} << 22, .total_bytes = int64_t{1} << 24};

void read_zip(const std::string& path) {
  const ZipArchive archive(path, limits);
  for (size_t i = 0; i < archive.members().size(); ++i) {
    const ZipMember& member = archive.members()[i];
    require(!member.name.starts_with('/') && ("/" + member.name + "/").find("/../") == std::string::npos,
            "zip: a name that leads out");
    require(archive.read(i).size() == static_cast<size_t>(member.size), "zip: another size");
  }
}

int give_zip(std::string_view bytes) { return taken_file(path_of(bytes), read_zip); }

const Register zip_target("zip", give_zip);

}  // namespace
}  // namespace bilevel::fuzz
