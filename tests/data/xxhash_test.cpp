#include "bilevel/data/xxhash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace bilevel::test {
namespace {

// As the reference implementation gives them: its documentation and its own sanity checks.
TEST(Xxhash, AgreesWithTheReference) {
  EXPECT_EQ(xxhash64(""), 0xef46db3751d8e999U);
  EXPECT_EQ(xxhash64("a"), 0xd24ec4f1a98c6e5bU);
  EXPECT_EQ(xxhash64("abc"), 0x44bc2cf5ad770999U);
  EXPECT_EQ(xxhash64("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1U);
  // The sanity buffer of the reference: bytes of a multiplicative generator.
  std::string buffer;
  uint64_t generator = 2654435761U;
  for (int i = 0; i < 222; ++i) {
    buffer += static_cast<char>(generator >> 56);
    generator *= 11400714785074694797U;
  }
  const std::string_view all(buffer);
  EXPECT_EQ(xxhash64(all.substr(0, 1)), 0xe934a84adb052768U);
  EXPECT_EQ(xxhash64(all.substr(0, 14)), 0x8282dcc4994e35c8U);
  EXPECT_EQ(xxhash64(all.substr(0, 222)), 0xb641ae8cb691c174U);
  EXPECT_EQ(xxhash64(all.substr(0, 222), 2654435761U), 0x20cb8ab7ae10c14aU);
}

TEST(Xxhash, TellsEveryBit) {
  std::string bytes(77, 'x');
  std::set<uint64_t> seen{xxhash64(bytes)};
  for (char& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ 1 << bit);
      EXPECT_TRUE(seen.insert(xxhash64(bytes)).second);
      byte = static_cast<char>(byte ^ 1 << bit);
    }
  }
  EXPECT_TRUE(seen.insert(xxhash64(bytes + "x")).second);
}

}  // namespace
}  // namespace bilevel::test
