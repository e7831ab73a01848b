#include "bilevel/data/tar.h"

#include <gmock/gmock.h>

#include <array>

#include "bilevel/data/gzip.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t limit = 1 << 20;

std::vector<std::string> list(const std::string& path) {
  const auto source = open_bytes(path, limit);
  TarReader tar(*source);
  TarEntry entry;
  std::vector<std::string> all;
  while (tar.next(entry)) {
    all.push_back(fmt::format("{}{}={}", entry.name, entry.regular ? "" : "?", tar.content(limit)));
  }
  return all;
}

class Tar : public ::testing::Test {
 protected:
  std::vector<std::string> read(const std::string& archive) const {
    return list(folder_.put("a.tar", archive));
  }
  std::string message(const std::string& archive) const {
    return message_of([&] { read(archive); });
  }
  TemporaryFolder folder_;
};

TEST_F(Tar, ReadsFilesFoldersAndLinks) {
  const std::string archive = tar_entry("d/", "", '5') + tar_entry("d/a", "hello") +
                              tar_entry("d/l", "", '2') + tar_entry("b", std::string(512, 'x')) +
                              tar_entry("c", "old", '\0', "pre/fix") + tar_end;
  EXPECT_THAT(read(archive),
              ElementsAre("d/?=", "d/a=hello", "d/l?=", "b=" + std::string(512, 'x'), "pre/fix/c=old"));
  if (has_gzip()) {
    EXPECT_EQ(read(gzip(archive)).size(), 5U);
  }
}

TEST_F(Tar, ReadsLongNamesOfGnuAndPosix) {
  const std::string name(300, 'n');
  EXPECT_THAT(read(tar_entry("././@LongLink", name + '\0', 'L') + tar_entry(name, "one") +
                   tar_entry("b", "two") + tar_end),
              ElementsAre(name + "=one", "b=two"));
  const std::string record = fmt::format("309 path={}\n", name.substr(0, 299));
  ASSERT_EQ(record.size(), 309U);
  EXPECT_THAT(
      read(tar_entry("g", "20 comment=ignored\n\n", 'g') + tar_entry("x", record + "9 size=3\n", 'x') +
           tar_entry("short", "one", '0', "", 0) + tar_end),
      ElementsAre(name.substr(0, 299) + "=one"));
}

TEST_F(Tar, SkipsWhatIsNotRead) {
  const std::string path =
      folder_.put("a.tar", tar_entry("a", std::string(70000, 'x')) + tar_entry("b", "two") + tar_end);
  const auto source = open_bytes(path, limit);
  TarReader tar(*source);
  TarEntry entry;
  std::array<char, 10> some{};
  ASSERT_TRUE(tar.next(entry));
  EXPECT_EQ(tar.read(some.data(), some.size()), 10U);
  ASSERT_TRUE(tar.next(entry));
  EXPECT_EQ(tar.read(some.data(), some.size()), 3U);
  EXPECT_EQ(tar.read(some.data(), some.size()), 0U);
  EXPECT_FALSE(tar.next(entry));
}

TEST_F(Tar, RefusesPrefixesUpToTheEndMark) {
  const std::string archive = tar_entry("././@LongLink", std::string("name\0", 5), 'L') +
                              tar_entry("a", "hello") + tar_entry("b", "") + std::string(512, '\0');
  expect_every_prefix_refused(folder_, "a.tar", archive, [](const std::string& path) { list(path); });
}

TEST_F(Tar, RefusesDamageAndAbsurdSizes) {
  std::string damaged = tar_entry("a", "hello") + tar_end;
  damaged[3] = 'x';
  EXPECT_THAT(message(damaged), AllOf(HasSubstr(folder_.at("a.tar") + ": byte 0:"), HasSubstr("checksum")));
  EXPECT_THAT(message(tar_entry("a", "", '0', "", int64_t{1} << 32) + tar_end),
              HasSubstr("'a' (4294967296 bytes), found room for 1024 bytes at most"));
  EXPECT_THAT(message(tar_entry("a", "", 'L', "", int64_t{1} << 30) + tar_end),
              HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(message(tar_entry("x", "99 path=a\n", 'x') + tar_entry("a", "") + tar_end),
              HasSubstr("a pax header"));
  EXPECT_THAT(message(tar_entry("x", "11 size=-5\n", 'x') + tar_entry("a", "") + tar_end),
              HasSubstr("a pax header"));
  const std::string path = folder_.put("b.tar", tar_entry("a", "hello") + tar_end);
  const auto source = open_bytes(path, limit);
  TarReader tar(*source);
  TarEntry entry;
  ASSERT_TRUE(tar.next(entry));
  EXPECT_THAT(message_of([&] { tar.content(4); }), HasSubstr("an entry of at most 4 bytes, found 5"));
}

}  // namespace
}  // namespace bilevel::test
