#include "bilevel/meta/fc100.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "bilevel/data/image_sets.h"
#include "tests/data/files.h"
#include "tests/messages.h"
#include "tests/meta/image_identity.h"
#include "tests/meta/same_tasks.h"

namespace bilevel::test {
namespace {

using meta::ImageTasks;
using meta::ImageTaskSet;
using meta::Part;
using meta::TaskShape;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A record whose first two bytes of red are the class and the number of the image.
std::string record(int coarse, int fine, int number) {
  std::string bytes(2 + 3072, '\0');
  bytes[0] = static_cast<char>(coarse);
  bytes[1] = static_cast<char>(fine);
  bytes[2] = static_cast<char>(fine);
  bytes[3] = static_cast<char>(number);
  return bytes;
}

// Superclass s has the classes s, s + 20, ..., s + 80, not CIFAR-100's: the files decide.
std::string records(int from, int to) {
  std::string all;
  for (int number = from; number < to; ++number) {
    for (int fine = 0; fine < 100; ++fine) all += record(fine % 20, fine, number);
  }
  return all;
}

class Fc100 : public ::testing::Test {
 protected:
  ImageTaskSet read() const {
    return meta::read_fc100(folder_.put("train.bin", records(0, 5)), folder_.put("test.bin", records(5, 6)));
  }
  TemporaryFolder folder_;
};

TEST(Fc100Split, has_twelve_four_and_four_superclasses) {
  std::map<Part, std::set<int64_t>> parts;
  for (int64_t s = 0; s < 20; ++s) parts[meta::fc100_part(s)].insert(s);
  EXPECT_EQ(parts[Part::train].size(), 12U);
  EXPECT_EQ(parts[Part::valid], (std::set<int64_t>{8, 11, 13, 16}));
  EXPECT_EQ(parts[Part::test], (std::set<int64_t>{0, 7, 12, 14}));
  EXPECT_THAT(message([] { meta::fc100_part(20); }), HasSubstr("superclass = 20: must be 0 to 19"));
}

TEST_F(Fc100, parts_classes_by_superclass_over_both_files) {
  ImageTaskSet set = read();
  EXPECT_EQ(set.parts.train.size(), 60U);
  EXPECT_EQ(set.parts.valid.size(), 20U);
  EXPECT_EQ(set.parts.test.size(), 20U);
  for (int64_t k = 0; k < 100; ++k) EXPECT_EQ(set.images.count(k), 6);
  EXPECT_EQ(set.images.names[34], "fox");
  set.scale = {{0, 0, 0}, {1, 1, 1}};
  const TaskShape shape{5, 2, 4};
  const ImageTasks source(set, shape, 0, at::kFloat);
  const auto met = expect_honest_tasks(source, shape, 120);
  for (const int64_t k : met[0]) EXPECT_EQ(meta::fc100_part(k % 20), Part::train) << k;
  for (const int64_t k : met[1]) EXPECT_EQ(meta::fc100_part(k % 20), Part::valid) << k;
  for (const int64_t k : met[2]) EXPECT_EQ(meta::fc100_part(k % 20), Part::test) << k;
}

TEST_F(Fc100, is_a_pure_function_of_seed_part_and_number) {
  const ImageTaskSet set = read();
  const auto make = [&](uint64_t seed) {
    return std::make_unique<ImageTasks>(set, TaskShape{5, 1, 2}, seed, at::kFloat);
  };
  expect_replayable(make);
  EXPECT_EQ(make(0)->input_shape(), (std::vector<int64_t>{3, 32, 32}));
}

TEST_F(Fc100, names_what_is_wrong) {
  const std::string train = folder_.put("train.bin", records(0, 1));
  const std::string test = folder_.put("test.bin", record(0, 20, 0) + record(1, 20, 1));
  EXPECT_THAT(
      message<std::runtime_error>([&] { meta::read_fc100(train, test); }),
      AllOf(HasSubstr("test.bin: byte 3074: expected superclass 0 for class 20"), HasSubstr("found 1")));
  const std::string cut = folder_.put("cut.bin", records(0, 1).substr(1));
  EXPECT_THAT(message<std::runtime_error>([&] { meta::read_fc100(cut, train); }),
              HasSubstr("cut.bin: byte 307399: expected records of 3074 bytes"));
  EXPECT_THAT(message<std::runtime_error>([&] { meta::read_fc100(folder_.path()); }),
              AllOf(HasSubstr("train.bin has 307400 bytes, expected 153700000"),
                    HasSubstr("cifar-100-binary.tar.gz")));
  folder_.put("empty/note", "");
  EXPECT_THAT(message<std::runtime_error>([&] { meta::read_fc100(folder_.at("empty")); }),
              AllOf(HasSubstr("cifar100 was not found"), HasSubstr("cifar-100-binary.tar.gz")));
  const ImageTaskSet one = meta::read_fc100(train, folder_.put("test.bin", record(0, 20, 7)));
  EXPECT_THAT(message([&] {
                ImageTasks(one, {5, 1, 15}, 0, at::kFloat);
              }),
              AllOf(HasSubstr("shots = 1 and queries = 15"), HasSubstr("of fc100 has 1 images")));
}

TEST_F(Fc100, coarse_labels_are_cifar100s_alone) {
  const CifarBatch batch = read_cifar100(folder_.put("a.bin", record(3, 43, 1) + record(19, 99, 2)));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({43, 99}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.coarse_labels, at::tensor({3, 19}, at::kLong)));
  const CifarBatch ten = read_cifar10(folder_.put("b.bin", std::string(3073, '\1')));
  EXPECT_FALSE(ten.coarse_labels.defined());
}

}  // namespace
}  // namespace bilevel::test
