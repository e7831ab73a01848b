#include "bilevel/data/byte_source.h"

#include <gmock/gmock.h>

#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/gzip.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/sha256.h"
#include "bilevel/data/write_file.h"
#include "bilevel/data/xz.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Python: lzma.compress(b"hello, hello, hello\n", check=lzma.CHECK_CRC32)
constexpr std::string_view xz_hello =
    "fd377a585a0000016922de360200210116000000742fe5a3e00013000e5d00341949ee8def8c8731f52f640000000000e7426e52"
    "0001"
    "261472e282f99042990d010000000001595a";

TEST(ByteSource, ReadsPlainFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.put("a", "hello"), 5), "hello");
  EXPECT_EQ(read_file(folder.put("a", ""), 5), "");
  EXPECT_THAT(message_of([&] { read_file(folder.put("a", "hello!"), 5); }),
              AllOf(HasSubstr(folder.at("a")), HasSubstr("at most 5 bytes")));
}

TEST(ByteSource, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { read_file(folder.path(), 5); }),
              HasSubstr("expected a regular file, found a folder"));
  EXPECT_THAT(message_of([&] { read_file("/dev/zero", 5); }), HasSubstr("a regular file"));
  EXPECT_EQ(message_of([&] { read_file(folder.at("missing"), 5); }),
            folder.at("missing") + ": there is no such file; check the path");
}

TEST(FileError, HasThePathAndTheCauseApart) {
  const TemporaryFolder folder;
  const std::string file = folder.put("a", "hello"), inside = file + "/b/c";
  try {
    make_folder(inside);
    FAIL() << "a file is in the folder's place";
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), inside);
    EXPECT_EQ(error.cause(), fmt::format("cannot create the folder {}: a file is in its place", file));
    EXPECT_EQ(error.what(), error.path() + ": " + error.cause());
  }
}

TEST(FileError, IsOfItsOwnTypeWhereTheFileIsMissing) {
  const TemporaryFolder folder;
  const std::string missing = folder.at("missing");
  EXPECT_THROW(read_file(missing, 5), MissingFileError);
  EXPECT_THROW(names_in(missing), MissingFileError);
  EXPECT_THROW(write_file(missing + "/a", "hello"), MissingFileError);
  EXPECT_THAT(
      message_of([&] { names_in(missing); }),
      missing + ": expected a folder that can be read, found No such file or directory; check the path");
  try {
    read_file(folder.path(), 5);
    FAIL() << "a folder is no file";
  } catch (const MissingFileError&) {
    FAIL() << "the folder is there";
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), folder.path());
  }
}

TEST(ByteSource, RefusesAPromiseBeforeTakingMemory) {
  const TemporaryFolder folder;
  const auto source = open_bytes(folder.put("a", "12345678"), 100);
  EXPECT_EQ(read_promised(*source, 3, "three"), "123");
  EXPECT_THAT(message_of([&] { read_promised(*source, int64_t{1} << 62, "a lot"); }),
              AllOf(HasSubstr("byte 3: expected a lot"), HasSubstr("room for 5 bytes at most")));
  EXPECT_THAT(message_of([&] { read_promised(*source, -1, "nonsense"); }), HasSubstr("nonsense"));
  EXPECT_THAT(message_of([&] { expect_end(*source, "it"); }), HasSubstr("the file's end after it"));
  EXPECT_EQ(read_promised(*source, 4, "rest"), "5678");
  expect_end(*source, "all");
}

TEST(Gzip, ReadsMembersAndVerifiesThem) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  const TemporaryFolder folder;
  std::string large;
  for (int i = 0; i < 50000; ++i) large += fmt::format("{} ", i % 977);
  EXPECT_EQ(read_file(folder.put("a", gzip(large)), 1 << 20), large);
  EXPECT_EQ(read_file(folder.put("a", gzip("one ") + gzip("") + gzip("two")), 100), "one two");
  EXPECT_EQ(read_file(folder.put("a", gzip("")), 100), "");
  expect_every_prefix_refused(folder, "a", gzip("some content"), [](const std::string& path) {
    if (read_file(path, 100).size() != 12)
      throw std::runtime_error(path + ": : too short to be seen as gzip");
  });
  std::string damaged = gzip("some content");
  damaged[17] ^= 1;
  EXPECT_THAT(message_of([&] { read_file(folder.put("a", damaged), 100); }),
              HasSubstr("incorrect data check"));
  EXPECT_THAT(message_of([&] { read_file(folder.put("a", gzip("x") + "trailing"), 100); }),
              HasSubstr("expected gzip data"));
}

TEST(Gzip, IsBoundedByItsLimitAndByWhatDeflateCanDo) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  const TemporaryFolder folder;
  const std::string path = folder.put("a", gzip(std::string(5000, 'x')));
  EXPECT_THAT(message_of([&] { read_file(path, 4999); }), HasSubstr("at most 4999 bytes"));
  EXPECT_EQ(open_bytes(folder.put("a", gzip("x")), int64_t{1} << 50)->most_bytes(), 24 * 1032);
}

TEST(Xz, ReadsAndRefusesPrefixes) {
  if (!has_xz()) GTEST_SKIP() << "SKIPPED: built without liblzma";
  const TemporaryFolder folder;
  const std::string file = from_hex(xz_hello);
  EXPECT_EQ(read_file(folder.put("a", file), 20), "hello, hello, hello\n");
  EXPECT_EQ(read_file(folder.put("a", file + file), 40), "hello, hello, hello\nhello, hello, hello\n");
  EXPECT_THAT(message_of([&] { read_file(folder.put("a", file), 19); }), HasSubstr("at most 19 bytes"));
  expect_every_prefix_refused(folder, "a", file, [](const std::string& path) {
    if (read_file(path, 100).size() != 20) throw std::runtime_error(path + ": : too short to be seen as xz");
  });
}

TEST(LineReader, GivesLinesOfEveryEnd) {
  const TemporaryFolder folder;
  const std::string longest(3000000, 'y');  // longer than the first buffer
  LineReader lines(folder.put("a", "\xef\xbb\xbf" + std::string("one\r\n\ntwo\n") + longest + "\nlast"),
                   1 << 24);
  std::vector<std::string> all;
  std::string_view line;
  while (lines.next(line)) all.emplace_back(line);
  EXPECT_EQ(all, (std::vector<std::string>{"one", "", "two", longest, "last"}));
  EXPECT_EQ(lines.number(), 5);
}

TEST(LineReader, ParsesWholeNumbersOnly) {
  double value = 0;
  EXPECT_TRUE(parse_number("+1.5e3", value) && value == 1500);
  EXPECT_TRUE(parse_number("-.25", value) && value == -0.25);
  for (const char* wrong : {"", "+", "-", "+-1", "1,5", "1 ", " 1", "0x10", "1e", "1e400", "one"}) {
    EXPECT_FALSE(parse_number(wrong, value)) << wrong;
  }
}

// The examples of FIPS 180-2, appendix B.
TEST(Sha256, GivesTheStandardsExamples) {
  const auto hash = [](std::string_view text) {
    Sha256 sha;
    sha.add(text);
    return sha.hex();
  };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 million;
  for (int i = 0; i < 1000; ++i) million.add(std::string(1000, 'a'));
  EXPECT_EQ(million.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const TemporaryFolder folder;
  EXPECT_EQ(sha256_of_file(folder.put("a", "abc")), hash("abc"));
}

}  // namespace
}  // namespace bilevel::test
