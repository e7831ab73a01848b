#include "bilevel/data/omniglot.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <chrono>

#include "bilevel/data/png.h"
#include "bilevel/data/zip.h"
#include "tests/data/png_files.h"
#include "tests/data/zip_files.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Drawing {
  std::string name;
  std::string png;
};

std::vector<Drawing> background() {
  return {{"images_background/Latin/character02/0002_01.png", plain_png(10, 10, 30)},
          {"images_background/Latin/character01/0001_02.png", plain_png(10, 10, 20)},
          {"images_background/Latin/character01/0001_01.png", plain_png(10, 10, 10)}};
}
std::vector<Drawing> evaluation() {
  return {{"images_evaluation/Greek/character01/0003_01.png", plain_png(10, 10, 40)}};
}

std::string archive(const std::vector<Drawing>& drawings) {
  std::vector<ZipEntry> entries{{drawings[0].name.substr(0, drawings[0].name.find('/') + 1), ""}};
  for (const Drawing& drawing : drawings) entries.push_back({drawing.name, drawing.png});
  entries.push_back({"__MACOSX/images_background/._litter", "x"});
  return zip_file(entries);
}

class Omniglot : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_png() || !has_zip()) GTEST_SKIP() << "SKIPPED: a build without libpng or libzip";
  }
  void put_zips(const std::vector<Drawing>& first) const {
    folder_.put("images_background.zip", archive(first));
    folder_.put("images_evaluation.zip", archive(evaluation()));
  }
  void put_folders(const std::vector<Drawing>& first) const {
    for (const Drawing& drawing : first) folder_.put(drawing.name, drawing.png);
    for (const Drawing& drawing : evaluation()) folder_.put(drawing.name, drawing.png);
  }
  ClassImages read() const { return read_omniglot({folder_.path(), 5}); }
  std::string message() const {
    return message_of([&] { read(); });
  }
  TemporaryFolder folder_;
};

void expect_the_four(const ClassImages& set) {
  EXPECT_THAT(set.names, ElementsAre("Greek/character01", "Latin/character01", "Latin/character02"));
  EXPECT_THAT(set.begin, ElementsAre(0, 1, 3, 4));
  ASSERT_EQ(set.images.sizes(), (std::vector<int64_t>{4, 1, 5, 5}));
  const double values[] = {40, 10, 20, 30};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(set.images[i], at::full({1, 5, 5}, values[i], at::kByte))) << i;
  }
}

TEST_F(Omniglot, ReadsArchivesAndFolders) {
  put_zips(background());
  expect_the_four(read());
  const TemporaryFolder unpacked;
  for (const auto& drawings : {background(), evaluation()}) {
    for (const Drawing& drawing : drawings) unpacked.put(drawing.name, drawing.png);
  }
  unpacked.put("images_background/Latin/character01/strokes.txt", "not an image");
  expect_the_four(read_omniglot({unpacked.path(), 5}));
}

TEST_F(Omniglot, NamesWhatIsWrong) {
  EXPECT_THAT(message(), AllOf(HasSubstr(folder_.path() + ": expected images_background.zip"),
                               HasSubstr("github.com/brendenlake/omniglot")));
  std::vector<Drawing> drawings = background();
  drawings[1].png.resize(40);
  put_zips(drawings);
  EXPECT_THAT(message(),
              HasSubstr("images_background.zip: member "
                        "images_background/Latin/character01/0001_02.png: byte 33: expected a PNG"));
  drawings = background();
  drawings[0].png = plain_png(10, 9, 1);
  put_zips(drawings);
  EXPECT_THAT(message(), AllOf(HasSubstr("character02/0002_01.png: expected 10 x 10 grey pixels as in "),
                               HasSubstr("found 10 x 9")));
  drawings[0].png = plain_png(10, 10, 1, rgb);
  put_zips(drawings);
  EXPECT_THAT(message(), HasSubstr("found 10 x 10 in colour"));
  drawings = background();
  drawings[0].name = "images_background/character02/0002_01.png";
  put_zips(drawings);
  EXPECT_THAT(message(),
              HasSubstr("member images_background/character02/0002_01.png: expected PART/ALPHABET/"));
  std::string bytes = archive(background());
  bytes.replace(bytes.find("IDAT"), 4, "iDAT");
  folder_.put("images_background.zip", bytes);
  EXPECT_THAT(message(), HasSubstr("member images_background/Latin/character02/0002_01.png"));
  folder_.put("images_background.zip", zip_file({}));
  EXPECT_THAT(message(), HasSubstr("images_background.zip: expected members PART/ALPHABET/"));
  EXPECT_THAT(bilevel::test::message([&] {
                read_omniglot({folder_.path(), 106});
              }),
              HasSubstr("image_size = 106: must be 1 to Omniglot's 105"));
  EXPECT_THAT(bilevel::test::message([&] { read_omniglot({"", 28}); }), HasSubstr("folder is not given"));
}

TEST_F(Omniglot, NamesAnEmptyFolder) {
  put_folders(background());
  folder_.put("images_background/Latin/character03/readme.txt", "");
  EXPECT_THAT(message(),
              HasSubstr("images_background/Latin/character03: expected PNG files of the character"));
}

TEST_F(Omniglot, ReadsTheOfficialFiles) {
  const std::string path = shared_data("omniglot");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: ../shared/data/omniglot is missing";
  const auto start = std::chrono::steady_clock::now();
  const ClassImages set = read_omniglot({path, 28});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_EQ(set.classes(), 1623);
  EXPECT_EQ(set.images.sizes(), (std::vector<int64_t>{32460, 1, 28, 28}));
  for (int64_t k = 0; k < set.classes(); ++k)
    ASSERT_EQ(set.count(k), 20) << set.names[static_cast<size_t>(k)];
  EXPECT_EQ(set.names.front(), "Alphabet_of_the_Magi/character01");
  const double dark = 1 - set.images.to(at::kFloat).mean().item<double>() / 255;
  EXPECT_GT(dark, 0.04) << "a few percent of the paper are ink";
  EXPECT_LT(dark, 0.12);
  EXPECT_EQ(set.images.max().item<int>(), 255);
  EXPECT_EQ(set.images.min().item<int>(), 0);
}

}  // namespace
}  // namespace bilevel::test
