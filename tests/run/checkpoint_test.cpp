// Checkpoint files: every bit comes back, every damage is refused with its place, and the one before serves.
#include "bilevel/run/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bilevel/data/sha256.h"
#include "tests/data/files.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Checkpoint sample() {
  Checkpoint checkpoint;
  checkpoint.tensors["w"] = random_vector(5, 1);
  checkpoint.tensors["matrix"] = random_vector(12, 2).to(at::kFloat).reshape({3, 4});
  checkpoint.tensors["index"] = at::arange(4);
  checkpoint.tensors["bytes"] = at::arange(3).to(at::kByte);
  checkpoint.metadata = {{"epoch", 3}, {"name", "a \"name\"\n"}, {"rates", {0.1, 1.0 / 3, 5e-324, 1e308}}};
  return checkpoint;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || !a.sizes().equals(b.sizes())) return false;
  const Tensor left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

void expect_same(const Checkpoint& found, const Checkpoint& expected) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    EXPECT_TRUE(same_bits(found.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(found.metadata, expected.metadata);
}

// A file with any header, its length and checksum right: what a hostile writer can make.
std::string file_with(const std::string& header, const std::string& data = "",
                      const std::string& version = little_endian(1, 4)) {
  const std::string text = "bilevel\n" + version + little_endian(0, 4) +
                           little_endian(static_cast<uint32_t>(header.size()), 4) + little_endian(0, 4) +
                           header + data;
  Sha256 hash;
  hash.add(text);
  return text + hash.hex();
}
const char* const machine = R"({"version":"1","torch":"1","blas":"b","cpu":"c","threads":1,"cuda":false})";
std::string header_with(const std::string& tensors, const std::string& data_bytes = "8") {
  return fmt::format(R"({{"machine":{},"metadata":{{}},"data_bytes":{},"tensors":{}}})", machine, data_bytes,
                     tensors);
}

TEST(Checkpoint, every_bit_comes_back) {
  const TemporaryFolder folder;
  Checkpoint checkpoint = sample();
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  checkpoint.tensors["special"] = vec({nan, infinity, -infinity, -0.0, 5e-324});
  checkpoint.tensors["scalar"] = at::scalar_tensor(2.5, doubles());
  checkpoint.tensors["empty"] = at::empty({0, 3}, doubles());
  checkpoint.tensors["view"] = at::arange(12).reshape({3, 4}).t();
  checkpoint.tensors["half"] = random_vector(7, 3).to(at::kHalf);
  checkpoint.tensors["brain"] = random_vector(7, 3).to(at::kBFloat16);
  checkpoint.tensors["int"] = at::arange(3).to(at::kInt);
  checkpoint.tensors["tracked"] = random_vector(2, 1).requires_grad_(true);
  for (int i = 0; i < 1000; ++i)
    checkpoint.metadata["many"].push_back(number(random_vector(1, static_cast<uint64_t>(i))));
  const std::string path = folder.at("a.checkpoint");
  save_checkpoint(path, checkpoint);
  const Checkpoint found = load_checkpoint(path);
  expect_same(found, checkpoint);
  EXPECT_EQ(found.warning, "");
  EXPECT_TRUE(differences(found.machine, machine_facts()).empty());
  EXPECT_FALSE(exists(previous_checkpoint(path)));
  EXPECT_THAT(bytes_of(path), StartsWith("bilevel\n"));
  // Nothing is left beside it, and nothing at all makes an empty one.
  save_checkpoint(folder.at("empty"), {});
  EXPECT_TRUE(load_checkpoint(folder.at("empty")).tensors.empty());
}

TEST(Checkpoint, every_flipped_byte_and_every_missing_end_is_refused_by_name) {
  const TemporaryFolder folder;
  const std::string path = folder.at("a");
  save_checkpoint(path, sample());
  const std::string whole = bytes_of(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    folder.put("b", damaged);
    ASSERT_THAT(message_of([&] { read_checkpoint(folder.at("b")); }), StartsWith(folder.at("b") + ": byte "))
        << i;
  }
  expect_every_prefix_refused(folder, "c", whole, [](const std::string& p) { read_checkpoint(p); });
  folder.put("d", whole + "x");
  EXPECT_THAT(message_of([&] { read_checkpoint(folder.at("d")); }), StartsWith(folder.at("d") + ": byte "));
}

TEST(Checkpoint, says_what_was_expected_and_found) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    return message_of([&] { read_checkpoint(folder.put("x", bytes)); });
  };
  save_checkpoint(folder.at("a"), sample());
  const std::string whole = bytes_of(folder.at("a"));
  EXPECT_THAT(refused("short"), AllOf(HasSubstr("at least 88 bytes"), HasSubstr("found 5 bytes")));
  EXPECT_THAT(refused(std::string(100, 'a')),
              AllOf(HasSubstr("byte 0"), HasSubstr("first bytes of a checkpoint")));
  EXPECT_THAT(refused(file_with(header_with("[]", "0"), "", little_endian(2, 4))),
              AllOf(HasSubstr("byte 8"), HasSubstr("version 1"), HasSubstr("found 2")));
  std::string changed = whole;
  changed[whole.size() - 70] ^= 1;  // in the last tensor
  EXPECT_THAT(refused(changed),
              AllOf(HasSubstr(fmt::format("byte {}", whole.size() - 64)), HasSubstr("SHA-256")));
  EXPECT_THAT(message_of([&] { load_checkpoint(folder.at("nothing")); }),
              AllOf(HasSubstr("nothing"), HasSubstr("nothing.previous")));
}

// Checksums are right in all of these, so that only the checks of the header stand in the way.
TEST(Checkpoint, absurd_headers_are_refused_before_memory_is_taken) {
  const TemporaryFolder folder;
  const std::string data(8, '\0');
  const auto refused = [&](const std::string& header) {
    return message_of([&] { read_checkpoint(folder.put("x", file_with(header, data))); });
  };
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offset,
                        const std::string& bytes) {
    return fmt::format(R"({{"name":"t","dtype":"{}","shape":{},"offset":{},"bytes":{}}})", dtype, shape,
                       offset, bytes);
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offset,
                       const std::string& bytes) {
    return refused(header_with("[" + entry(dtype, shape, offset, bytes) + "]"));
  };
  EXPECT_EQ(one("float64", "[1]", "0", "8"), "nothing was thrown");
  EXPECT_EQ(one("uint8", "[2,4]", "0", "8"), "nothing was thrown");
  const std::vector<std::string> shapes = {"[2]",
                                           "[4611686018427387904,4611686018427387904]",
                                           "[18446744073709551615]",
                                           "[-1]",
                                           "[0,4611686018427387904,4611686018427387904]",
                                           "[4294967296,4294967296,1]",
                                           "[1.0]",
                                           "[true]",
                                           "[null]",
                                           "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                                           "{}",
                                           "1",
                                           "null"};
  for (const std::string& shape : shapes)
    EXPECT_THAT(one("float64", shape, "0", "8"), HasSubstr("x: byte 24")) << shape;
  for (const char* bytes : {"-8", "16", "0", "9223372036854775807", "18446744073709551608", "8.0", "\"8\""}) {
    EXPECT_THAT(one("float64", "[1]", "0", bytes), HasSubstr("x: byte 24")) << bytes;
  }
  EXPECT_THAT(one("float64", "[2305843009213693952]", "0", "18446744073709551616"), HasSubstr("x: byte 24"));
  for (const char* offset : {"-8", "8", "1", "9223372036854775807", "null"}) {
    EXPECT_THAT(one("float64", "[1]", offset, "8"), HasSubstr("x: byte 24")) << offset;
  }
  EXPECT_THAT(one("complex128", "[1]", "0", "8"), HasSubstr("complex128"));
  EXPECT_THAT(one("bool", "[8]", "0", "8"), HasSubstr("known dtype"));
  // The same name twice; bytes that no tensor owns; more data promised than there is.
  const std::string half = entry("float32", "[1]", "0", "4"), rest = entry("float32", "[1]", "4", "4");
  EXPECT_THAT(refused(header_with("[" + half + "," + rest + "]")), HasSubstr("twice"));
  EXPECT_THAT(refused(header_with("[" + half + "]")), HasSubstr("4 bytes"));
  EXPECT_THAT(refused(header_with("[]", "9223372036854775807")),
              HasSubstr("9223372036854775807 bytes of tensors"));
  for (const char* header :
       {"", "[]", "{}", "null", "{\"tensors\":[]}", "{\"machine\":3}", "\xff\xfe", "{\"a\":"}) {
    EXPECT_THAT(refused(header), HasSubstr("x: byte 24")) << header;
  }
  EXPECT_THAT(refused(header_with("{}")), HasSubstr("'tensors'"));
  EXPECT_THAT(refused(header_with("[3]")), HasSubstr("'name'"));
  EXPECT_THAT(refused(std::string(1'000'000, '[')), HasSubstr("64 levels"));
  // The length of the header itself.
  for (const uint32_t high : {0U, 1U, 0xffffffffU}) {
    const std::string bytes = "bilevel\n" + little_endian(1, 4) + little_endian(0, 4) +
                              little_endian(0xfffffff0U, 4) + little_endian(high, 4) + std::string(100, ' ');
    EXPECT_THAT(message_of([&] { read_checkpoint(folder.put("y", bytes)); }),
                AllOf(HasSubstr("byte 16"), HasSubstr("at most 36 bytes")));
  }
}

TEST(Checkpoint, the_one_before_is_kept_and_serves_where_the_newest_is_damaged) {
  const TemporaryFolder folder;
  const std::string path = folder.at("a");
  Checkpoint first = sample(), second = sample();
  first.metadata["epoch"] = 1;
  second.metadata["epoch"] = 2;
  save_checkpoint(path, first);
  save_checkpoint(path, second);
  EXPECT_EQ(load_checkpoint(path).metadata.at("epoch"), 2);
  EXPECT_EQ(read_checkpoint(previous_checkpoint(path)).metadata.at("epoch"), 1);

  std::string damaged = bytes_of(path);
  damaged[damaged.size() / 2] ^= 4;
  folder.put("a", damaged);
  const Checkpoint found = load_checkpoint(path);
  expect_same(found, first);
  EXPECT_THAT(found.warning, AllOf(StartsWith(path + ": byte "), HasSubstr("a.previous, was read instead")));

  std::remove(path.c_str());  // killed between the two renames
  EXPECT_THAT(load_checkpoint(path).warning, HasSubstr("was read instead"));
  expect_same(load_checkpoint(path), first);

  folder.put("a", damaged);
  folder.put("a.previous", damaged.substr(0, 50));
  EXPECT_THAT(message_of([&] { load_checkpoint(path); }),
              AllOf(StartsWith(path + ": byte "), HasSubstr("a.previous: byte 0")));
}

TEST(Checkpoint, a_save_that_fails_changes_nothing) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.at("no/such/folder"), sample()); }),
              AllOf(HasSubstr("cannot create"), HasSubstr("No such file")));
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.path(), sample()); }), HasSubstr("give a file's name"));
  const std::string path = folder.at("a");
  save_checkpoint(path, sample());
  const auto refused = [&](auto change) {
    Checkpoint bad = sample();
    change(bad);
    return message_of<std::invalid_argument>([&] { save_checkpoint(path, bad); });
  };
  EXPECT_THAT(refused([](Checkpoint& c) { c.metadata["a"]["b"] = std::nan(""); }),
              HasSubstr("metadata/a/b = nan"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.metadata = {1, 2}; }), HasSubstr("must be an object"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.metadata["a"] = "\xff"; }), HasSubstr("not valid text"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.metadata["a"] = std::string(1 << 25, 'a'); }),
              HasSubstr("at most 16777216"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.tensors["u"] = Tensor(); }), HasSubstr("'u' is undefined"));
  EXPECT_THAT(refused([](Checkpoint& c) { c.tensors["u"] = at::zeros({2}, at::kBool); }),
              HasSubstr("'u' is Bool"));
  expect_same(load_checkpoint(path), sample());
  EXPECT_FALSE(exists(previous_checkpoint(path)));
}

TEST(Machine, differences_are_sentences) {
  const MachineFacts now = machine_facts();
  EXPECT_TRUE(differences(now, now).empty());
  MachineFacts then = now;
  then.threads = now.threads + 3;
  then.cpu = "Z80";
  const auto sentences = differences(then, now);
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_THAT(sentences[0], AllOf(HasSubstr("processor was Z80"), HasSubstr("bits may differ")));
  EXPECT_THAT(sentences[1],
              AllOf(HasSubstr(fmt::format("threads was {} and is now {}", then.threads, now.threads)),
                    HasSubstr(fmt::format("--threads {}", then.threads))));
  then.torch = "0.1";
  then.blas = "other";
  then.version = "0.0.0";
  then.cuda = !now.cuda;
  EXPECT_EQ(differences(then, now).size(), 6U);
}

}  // namespace
}  // namespace bilevel::test
