#include "bilevel/data/idx.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "bilevel/data/gzip.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Idx, ReadsEveryType) {
  const TemporaryFolder folder;
  const auto read = [&](char type, const std::string& values) {
    return read_idx(folder.put("a", idx(type, {2}, values)));
  };
  EXPECT_TRUE(read(8, "\x01\xff").equal(at::tensor({1, 255}).to(at::kByte)));
  EXPECT_TRUE(read(9, "\x01\xff").equal(at::tensor({1, -1}).to(at::kChar)));
  EXPECT_TRUE(read(11, std::string("\x01\x02\xff\xfe", 4)).equal(at::tensor({258, -2}).to(at::kShort)));
  EXPECT_TRUE(
      read(12, big_endian(65536) + big_endian(0xffffffff)).equal(at::tensor({65536, -1}).to(at::kInt)));
  EXPECT_TRUE(read(13, big_endian(0x3f800000) + big_endian(0xc0200000)).equal(at::tensor({1.0F, -2.5F})));
  const std::string doubles = big_endian(0x3ff00000) + big_endian(0) + big_endian(0xc0040000) + big_endian(0);
  EXPECT_TRUE(read(14, doubles).equal(at::tensor({1.0, -2.5}, at::TensorOptions().dtype(at::kDouble))));
}

TEST(Idx, ReadsImagesAndLabelsPlainAndCompressed) {
  const TemporaryFolder folder;
  const std::string images = idx(8, {2, 2, 3}, "abcdefABCDEF");
  const Tensor plain = read_idx_images(folder.put("a", images));
  ASSERT_EQ(plain.sizes(), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(plain[1][0].item<int64_t>(), 'A');
  EXPECT_EQ(read_idx_images(folder.put("a", idx(8, {0, 28, 28}, ""))).sizes(),
            (std::vector<int64_t>{0, 784}));
  const Tensor labels = read_idx_labels(folder.put("a", idx(8, {3}, std::string("\0\2\1", 3))), 3);
  EXPECT_TRUE(labels.equal(at::tensor({0, 2, 1}).to(at::kLong)));
  if (has_gzip()) {
    EXPECT_TRUE(read_idx_images(folder.put("a.gz", gzip(images))).equal(plain));
  }
}

TEST(Idx, RefusesEveryPrefixAndEveryExcess) {
  const TemporaryFolder folder;
  const std::string file = idx(8, {3, 4}, "abcdefghijkl");
  expect_every_prefix_refused(folder, "a", file, [](const std::string& path) { read_idx(path); });
  EXPECT_THAT(message_of([&] { read_idx(folder.put("a", file + "m")); }),
              HasSubstr("byte 24: expected the file's end"));
  if (!has_gzip()) return;
  expect_every_prefix_refused(folder, "a", gzip(file), [](const std::string& path) { read_idx(path); });
  EXPECT_THAT(message_of([&] { read_idx(folder.put("a", gzip(file + "m"))); }),
              HasSubstr("the file's end after"));
}

TEST(Idx, RefusesAbsurdHeadersBeforeTakingMemory) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& bytes) {
    return message_of([&] { read_idx(folder.put("a", bytes)); });
  };
  EXPECT_THAT(message(idx(8, {4000000000, 4000000000}, "x")),
              AllOf(HasSubstr(folder.at("a") + ": byte"), HasSubstr("63 bits")));
  EXPECT_THAT(message(idx(8, {4000000000}, "x")), HasSubstr("room for 1 bytes at most"));
  EXPECT_THAT(message(idx(8, {0, 4000000000, 4000000000, 4000000000}, "")), HasSubstr("63 bits"));
  EXPECT_THAT(message(idx(10, {1}, "x")), HasSubstr("byte 2: expected a type among"));
  EXPECT_THAT(message(idx(8, {}, "x")), HasSubstr("1 to 8 dimensions, found 0"));
  EXPECT_THAT(message(idx(8, std::vector<uint32_t>(9, 1), "x")), HasSubstr("1 to 8 dimensions, found 9"));
  EXPECT_THAT(message("PK\3\4 not this"), HasSubstr("IDX's magic"));
  if (has_gzip()) {
    EXPECT_THAT(message(gzip(idx(8, {4000000000}, "x"))), HasSubstr("bytes at most"));
  }
}

// Two hundred thousand zeros in 236 bytes behind a header that promises ten values.
TEST(Idx, StopsADecompressionBombAtItsHeadersPromise) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  const TemporaryFolder folder;
  const std::string bomb = from_hex("1f8b0800000000000203edc1a11100200c00b147d163ff8171787c929a559dfd04") +
                           std::string(193, '\0') + from_hex("7cbb0b635e37520d0300");
  EXPECT_THAT(message_of([&] { read_idx(folder.put("a", bomb)); }),
              HasSubstr("byte 18: expected the file's end after 10 values"));
}

TEST(Idx, TellsImagesFromLabels) {
  const TemporaryFolder folder;
  const std::string labels = folder.put("labels", idx(8, {2}, "\x01\x0a"));
  const std::string images = folder.put("images", idx(8, {1, 2}, "ab"));
  EXPECT_THAT(message_of([&] { read_idx_images(labels); }), HasSubstr("swapped"));
  EXPECT_THAT(message_of([&] { read_idx_labels(images, 10); }), HasSubstr("swapped"));
  EXPECT_THAT(message_of([&] { read_idx_labels(labels, 10); }),
              HasSubstr("byte 9: expected a label below 10, found 10"));
}

}  // namespace
}  // namespace bilevel::test
