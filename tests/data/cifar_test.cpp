// CIFAR-10 and CIFAR-100 as their archives unpack: where they are found, and what is read from files that a
// program of another language wrote (tests/data/write_cifar.py).

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/data/process.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Holes instead of images: the right sizes and nothing else.
void put_holes(const TemporaryFolder& folder, const std::string& path, int64_t bytes) {
  ASSERT_EQ(::truncate(folder.put(path, "").c_str(), bytes), 0);
}

void put_cifar10(const TemporaryFolder& folder, const std::string& below) {
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin", "test_batch.bin"}) {
    put_holes(folder, below + name, 30730000);
  }
}

TEST(Cifar, IsFoundAsItsArchivesUnpack) {
  const TemporaryFolder folder;
  put_cifar10(folder, "cifar-10-batches-bin/");
  put_holes(folder, "cifar-100-binary/train.bin", 153700000);
  put_holes(folder, "cifar-100-binary/test.bin", 30740000);
  EXPECT_EQ(find_image_set("cifar10", folder.path()), folder.at("cifar-10-batches-bin"));
  EXPECT_EQ(find_image_set("cifar100", folder.path()), folder.at("cifar-100-binary"));
  // The archive's folder itself, too.
  EXPECT_EQ(find_image_set("cifar10", folder.at("cifar-10-batches-bin")), folder.at("cifar-10-batches-bin"));
  EXPECT_EQ(find_image_set("cifar100", folder.at("cifar-100-binary")), folder.at("cifar-100-binary"));
  // What `bilevel data get` fetched comes first: its files were verified.
  put_cifar10(folder, "cifar10/");
  EXPECT_EQ(find_image_set("cifar10", folder.path()), folder.at("cifar10"));
}

TEST(Cifar, NamesEveryFileThatIsMissingOrCutShort) {
  const TemporaryFolder folder;
  const auto said = [&](const char* name) {
    return message_of([&] { find_image_set(name, folder.path()); });
  };
  EXPECT_THAT(
      said("cifar10"),
      HasSubstr("cifar10 was not found: no data_batch_1.bin of 30730000 bytes in " + folder.at("cifar10") +
                ", " + folder.path() + ", " + folder.at("cifar-10-batches-bin") +
                "; fetch it with: bilevel data get cifar10 --to " + folder.path() +
                ", or unpack the authors' cifar-10-binary.tar.gz in " + folder.path()));
  put_cifar10(folder, "cifar-10-batches-bin/");
  folder.put("cifar-10-batches-bin/data_batch_3.bin", "short");
  ASSERT_EQ(::unlink(folder.at("cifar-10-batches-bin/test_batch.bin").c_str()), 0);
  EXPECT_THAT(said("cifar10"),
              AllOf(HasSubstr("cifar10 in " + folder.at("cifar-10-batches-bin") +
                              " is incomplete: data_batch_3.bin has 5 bytes, expected 30730000; "
                              "test_batch.bin is missing, expected 30730000 bytes; fetch it"),
                    Not(HasSubstr("data_batch_1"))));
}

TEST(Cifar, SaysWhatToDoWithAnArchiveOrAnotherForm) {
  const TemporaryFolder folder;
  const auto said = [&](const char* name) {
    return message_of([&] { find_image_set(name, folder.path()); });
  };
  folder.put("cifar-100-python/train", "");
  EXPECT_THAT(said("cifar100"), HasSubstr("; " + folder.at("cifar-100-python") +
                                          " has pickled Python objects, which are not read; the binary "
                                          "version, cifar-100-binary.tar.gz, is"));
  const std::string archive = folder.put("cifar-10-binary.tar.gz", "");
  EXPECT_THAT(said("cifar10"), HasSubstr("; unpack cifar-10-binary.tar.gz with: tar -xzf " + archive +
                                         " -C " + folder.path()));
}

// Records by a script that knows the format from its description alone.
class CifarRecords : public ::testing::TestWithParam<int> {};

TEST_P(CifarRecords, AreReadAsAnotherProgramWroteThem) {
  if (!run_process({"python3", "--version"}, "/").succeeded()) {
    GTEST_SKIP() << "SKIPPED: python3, which writes the records, is not installed";
  }
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "BILEVEL_SOURCE_DIR is not set: run by ctest, or set it";
  const TemporaryFolder folder;
  const std::string classes = std::to_string(GetParam());
  const ProcessResult wrote = run_process(
      {"python3", std::string(source) + "/tests/data/write_cifar.py", folder.path(), classes, "150", "30"},
      "/");
  ASSERT_TRUE(wrote.succeeded()) << wrote.output_tail;
  const bool hundred = GetParam() == 100;
  CifarBatch all;
  if (hundred) {
    all = read_cifar100(folder.at("cifar-100-binary/train.bin"));
    EXPECT_EQ(read_cifar100(folder.at("cifar-100-binary/test.bin")).labels.numel(), 30);
  } else {
    std::vector<Tensor> images, labels;
    for (int part = 1; part <= 5; ++part) {
      const CifarBatch batch =
          read_cifar10(folder.at("cifar-10-batches-bin/data_batch_" + std::to_string(part) + ".bin"));
      images.push_back(batch.images);
      labels.push_back(batch.labels);
    }
    all.images = at::cat(images);
    all.labels = at::cat(labels);
  }
  const json expected = json::parse(read_file(folder.at("expected.json"), 1 << 20));
  const auto as_tensor = [](const json& numbers) {
    return at::tensor(numbers.get<std::vector<int64_t>>(), at::kLong);
  };
  ASSERT_EQ(all.images.sizes(), (std::vector<int64_t>{150, 3, 32, 32}));
  EXPECT_TRUE(all.labels.equal(as_tensor(expected.at("labels"))));
  if (hundred) {
    EXPECT_TRUE(all.coarse_labels.equal(as_tensor(expected.at("coarse"))));
  }
  ASSERT_EQ(expected.at("pixels").size(), 400U);
  const auto pixel = all.images.accessor<uint8_t, 4>();
  for (const json& one : expected.at("pixels")) {
    const auto at = one.get<std::vector<int64_t>>();
    ASSERT_EQ(pixel[at[0]][at[1]][at[2]][at[3]], at[4]) << one;
  }
}

INSTANTIATE_TEST_SUITE_P(OfTenAndAHundredClasses, CifarRecords, ::testing::Values(10, 100),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace bilevel::test
