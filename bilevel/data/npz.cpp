// The zip: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16.
#include "bilevel/data/npz.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string_view>

#include "bilevel/data/crc32.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/data/zip.h"

namespace bilevel {
namespace {

constexpr std::string_view npy_ending = ".npy";
constexpr uint64_t first_day_of_1980 = 0x21;  // MS-DOS's date: a file's bytes depend on its arrays alone

class LittleEndian {
 public:
  LittleEndian& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>((value >> (8 * i)) & 0xffU);
    return *this;
  }
  LittleEndian& put(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// What a member's own header and the directory say alike, from the version needed to the lengths.
std::string facts_of(std::string_view name, std::string_view content) {
  LittleEndian facts;
  facts.put(20, 2).put(0, 2).put(0, 2);       // version 2.0, no flags, stored
  facts.put(0, 2).put(first_day_of_1980, 2);  // time and date
  facts.put(crc32(content), 4).put(content.size(), 4).put(content.size(), 4);
  facts.put(name.size(), 2).put(0, 2);
  return facts.text();
}

}  // namespace

void write_npz(const std::string& path, const std::vector<NamedArray>& arrays) {
  constexpr uint64_t most_bytes = std::numeric_limits<uint32_t>::max();
  constexpr size_t most_members = std::numeric_limits<uint16_t>::max(), longest_name = 1000;
  std::set<std::string> names;
  uint64_t total = 0;
  for (const NamedArray& array : arrays) {
    if (array.name.empty() || array.name.size() > longest_name || !names.insert(array.name).second) {
      throw std::invalid_argument(
          fmt::format("{}: array '{}': every array needs a name of its own, of at most {} letters", path,
                      array.name, longest_name));
    }
    total += array.value.nbytes() + 4 * longest_name;
  }
  if (total > most_bytes || arrays.size() > most_members) {
    throw std::invalid_argument(fmt::format("{}: {} arrays of {} bytes: at most {} arrays and 4 GiB fit",
                                            path, arrays.size(), total, most_members));
  }
  write_file(path, [&](std::ostream& file) {
    LittleEndian directory;
    uint64_t offset = 0;
    for (const NamedArray& array : arrays) {
      const std::string name = fmt::format("{}{}", array.name, npy_ending), content = npy_bytes(array.value);
      const std::string facts = facts_of(name, content);
      const std::string header = LittleEndian().put("PK\3\4").put(facts).put(name).text();
      file << header << content;
      directory.put("PK\1\2").put(20, 2).put(facts);
      directory.put(0, 2).put(0, 2).put(0, 2).put(0, 4);  // no comment, disk 0, no attributes
      directory.put(offset, 4).put(name);
      offset += header.size() + content.size();
    }
    LittleEndian end;
    end.put("PK\5\6").put(0, 2).put(0, 2).put(arrays.size(), 2).put(arrays.size(), 2);
    end.put(directory.text().size(), 4).put(offset, 4).put(0, 2);
    file << directory.text() << end.text();
  });
}

std::vector<NamedArray> read_npz(const std::string& path) {
  const ZipArchive archive(path, {.members = 100000, .member_bytes = int64_t{1} << 32});
  std::vector<NamedArray> arrays;
  for (size_t i = 0; i < archive.members().size(); ++i) {
    const ZipMember& member = archive.members()[i];
    if (member.folder || !member.name.ends_with(npy_ending)) {
      throw std::runtime_error(fmt::format(
          "{}: expected an archive of .npy files, found {} in it; is it a .npz file?", path, member.name));
    }
    arrays.push_back({member.name.substr(0, member.name.size() - npy_ending.size()),
                      npy_of(fmt::format("{}: {}", path, member.name), archive.read(i))});
  }
  return arrays;
}

}  // namespace bilevel
