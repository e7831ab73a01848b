#include "bilevel/data/npz.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "bilevel/data/crc32.h"
#include "bilevel/data/zip.h"
#include "tests/temporary_folder.h"

namespace bilevel {
namespace {

using ::testing::HasSubstr;

// The check values of the catalogue of CRC algorithms.
TEST(Crc32, GivesTheCatalogueSCheckValues) {
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32(""), 0U);
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Npz, ArraysComeBackUnderTheirNames) {
  if (!has_zip()) GTEST_SKIP() << "this build has no libzip: a .npz file is written, not read";
  const test::TemporaryFolder folder;
  const std::vector<NamedArray> arrays = {{"stem/0.convolution", at::arange(24, at::kFloat).view({2, 3, 4})},
                                          {"empty", at::empty({0, 3}, at::kDouble)},
                                          {"one", at::full({}, 7, at::kLong)}};
  write_npz(folder / "a.npz", arrays);
  const std::vector<NamedArray> read = read_npz(folder / "a.npz");
  ASSERT_EQ(read.size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(read[i].name, arrays[i].name);
    EXPECT_EQ(read[i].value.scalar_type(), arrays[i].value.scalar_type());
    EXPECT_EQ(read[i].value.sizes(), arrays[i].value.sizes());
    EXPECT_TRUE(read[i].value.equal(arrays[i].value)) << read[i].name;
  }
  write_npz(folder / "b.npz", arrays);
  EXPECT_EQ(bytes_of(folder / "a.npz"), bytes_of(folder / "b.npz"));
}

TEST(Npz, RefusesNamesThatComeTwiceAndDamagedFiles) {
  const test::TemporaryFolder folder;
  const Tensor one = at::zeros({1});
  EXPECT_THROW(write_npz(folder / "a.npz", {{"x", one}, {"x", one}}), std::invalid_argument);
  EXPECT_THROW(write_npz(folder / "a.npz", {{"", one}}), std::invalid_argument);
  if (!has_zip()) GTEST_SKIP() << "this build has no libzip: a .npz file is written, not read";
  write_npz(folder / "a.npz", {{"x", at::arange(100)}});
  std::string damaged = bytes_of(folder / "a.npz");
  damaged[400] = static_cast<char>(damaged[400] ^ 1);
  std::ofstream(folder / "b.npz", std::ios::binary) << damaged;
  try {
    read_npz(folder / "b.npz");
    ADD_FAILURE() << "read";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.npz: member x.npy: expected"));
  }
}

}  // namespace
}  // namespace bilevel
