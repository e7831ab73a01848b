#include "bilevel/data/zip.h"

#include <gmock/gmock.h>

#include "tests/data/zip_files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> zip_list(const std::string& path, const ZipLimits& limits = {}) {
  const ZipArchive archive(path, limits);
  std::vector<std::string> all;
  for (size_t i = 0; i < archive.members().size(); ++i) {
    const ZipMember& member = archive.members()[i];
    const std::string content = archive.read(i);
    EXPECT_EQ(static_cast<int64_t>(content.size()), member.size);
    all.push_back(fmt::format("{}{}={}", member.name, member.folder ? "?" : "", content));
  }
  return all;
}

class Zip : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_zip()) GTEST_SKIP() << "SKIPPED: a build without libzip";
  }
  std::vector<std::string> read(const std::vector<ZipEntry>& entries) const {
    return zip_list(folder_.put("a.zip", zip_file(entries)));
  }
  std::string message(const std::vector<ZipEntry>& entries, const ZipLimits& limits = {}) const {
    return message_of([&] { zip_list(folder_.put("a.zip", zip_file(entries)), limits); });
  }
  TemporaryFolder folder_;
};

TEST_F(Zip, ReadsStoredAndDeflatedMembers) {
  EXPECT_THAT(read({{"d/", ""}, {"d/a", "hello"}, {"d/b..c", "world", true}, {"empty", ""}}),
              ElementsAre("d/?=", "d/a=hello", "d/b..c=world", "empty="));
  EXPECT_THAT(read({}), ElementsAre());
}

TEST_F(Zip, NamesTheDamagedMember) {
  std::string bytes = zip_file({{"a", "hello"}, {"folder/b", "world"}});
  bytes.replace(bytes.find("world"), 5, "wOrld");
  const std::string path = folder_.put("b.zip", bytes);
  EXPECT_THAT(message_of([&] { zip_list(path); }), AllOf(HasSubstr(path + ": member folder/b: "),
                                                         HasSubstr("CRC"), HasSubstr("download it again")));
  std::string deflated = zip_file({{"c", "hello", true}});
  deflated[30 + 1] = '\7';  // no type of a deflate block
  EXPECT_THAT(message_of([&] { zip_list(folder_.put("b.zip", deflated)); }), HasSubstr("b.zip: member c: "));
}

TEST_F(Zip, RefusesEveryPrefix) {
  expect_every_prefix_refused(folder_, "a.zip", zip_file({{"a", "hello"}, {"b/c", "world", true}}),
                              [](const std::string& path) { zip_list(path); });
}

TEST_F(Zip, RefusesEveryChangedByteOrReadsTheSame) {
  const std::string whole = zip_file({{"a", "hello"}, {"b/c", "world", true}});
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0xff);
    const std::string path = folder_.put("a.zip", bytes);
    try {
      EXPECT_EQ(zip_list(path).size(), 2U) << "byte " << i;  // a date, or a version
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path + ": ")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 60);
}

TEST_F(Zip, RefusesNamesThatLeadOut) {
  for (const char* name :
       {"/etc/passwd", "../a", "a/../b", "a/..", "a//b", "./a", "c:a", "a\\b", "..", "a\nb"}) {
    EXPECT_THAT(message({{name, "x"}}), AllOf(HasSubstr("a.zip: member "), HasSubstr("not to be trusted")))
        << name;
  }
  EXPECT_THAT(message({{"a", "x"}, {"a", "y"}}), HasSubstr("member a: expected each name once"));
}

TEST_F(Zip, RefusesSizesBeforeMemoryIsTaken) {
  EXPECT_THAT(message({{"bomb", "hello", true, 1 << 20}}),
              HasSubstr("member bomb: expected a size that its 10 bytes can hold, found 1048576 bytes"));
  EXPECT_THAT(message({{"lie", "hello", false, 6}}), HasSubstr("member lie: expected a size"));
  EXPECT_THAT(message({{"short", "hello", true, 6}}), HasSubstr("member short: expected 6 bytes"));
  EXPECT_THAT(message({{"long", "hello", true, 4}}), HasSubstr("member long: expected 4 bytes"));
  EXPECT_THAT(message({{"huge", "hello", true, int64_t{1} << 30}}), HasSubstr("at most 268435456 bytes"));
  ZipLimits limits;
  limits.total_bytes = 9;
  EXPECT_THAT(message({{"a", "hello"}, {"b", "world"}}, limits),
              HasSubstr("member b: expected members of at most 9 bytes in all"));
  limits.members = 1;
  EXPECT_THAT(message({{"a", ""}, {"b", ""}}, limits), HasSubstr("at most 1 members, found 2"));
}

TEST_F(Zip, RefusesWhatItCannotRead) {
  EXPECT_THAT(message({{"a", "hello", false, -1, 1}}),
              HasSubstr("member a: expected a member without a password"));
  EXPECT_THAT(message({{"a", "hello", false, -1, 0, 12}}), HasSubstr("found compression method 12"));
  EXPECT_THAT(message_of([&] { zip_list(folder_.put("a.zip", "no archive at all")); }),
              HasSubstr("a.zip: byte 0: expected a zip archive"));
  EXPECT_THAT(message_of([&] { zip_list(folder_.at("b.zip")); }), HasSubstr("b.zip: there is no such file"));
  EXPECT_THAT(message_of([&] { zip_list(folder_.path()); }), HasSubstr("found a folder"));
}

TEST(ZipMissing, SaysWhatToInstall) {
  if (has_zip()) GTEST_SKIP() << "SKIPPED: built with libzip";
  EXPECT_THAT(message_of([] { ZipArchive("a.zip"); }), HasSubstr("install libzip-dev"));
}

}  // namespace
}  // namespace bilevel::test
