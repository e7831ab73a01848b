#include "bilevel/data/image_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"
#include "tests/data/png_files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Png : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_png()) GTEST_SKIP() << "SKIPPED: built without libpng";
  }
  Tensor read(const std::string& bytes) const { return read_png(folder_.put("a.png", bytes)); }
  std::string message(const std::string& bytes) const {
    return message_of([&] { read(bytes); });
  }
  static Tensor bytes(const std::vector<int>& values, at::IntArrayRef shape) {
    return at::tensor(values).to(at::kByte).view(shape);
  }
  TemporaryFolder folder_;
};
using ImageFolder = Png;

TEST_F(Png, ReadsEveryKindAsBytes) {
  EXPECT_TRUE(read(png_file(2, 1, grey, 8, std::string("\0\x07\xfe", 3))).equal(bytes({7, 254}, {1, 1, 2})));
  EXPECT_TRUE(read(png_file(3, 1, grey, 1, std::string("\0\xa0", 2))).equal(bytes({255, 0, 255}, {1, 1, 3})));
  EXPECT_TRUE(read(png_file(2, 1, grey, 4, std::string("\0\x1f", 2))).equal(bytes({17, 255}, {1, 1, 2})));
  // 16 bits are scaled and rounded: 0x01ff / 257 = 1.99.
  EXPECT_TRUE(
      read(png_file(2, 1, grey, 16, std::string("\0\x01\xff\xff\xff", 5))).equal(bytes({2, 255}, {1, 1, 2})));
  EXPECT_TRUE(read(png_file(1, 2, grey_alpha, 8, std::string("\0\x07\x80\0\x09\0", 6)))
                  .equal(bytes({7, 9}, {1, 2, 1})));
  EXPECT_TRUE(read(png_file(2, 1, rgb, 8,
                            std::string("\0abcdef"
                                        "",
                                        7)))
                  .equal(bytes({'a', 'd', 'b', 'e', 'c', 'f'}, {3, 1, 2})));
  EXPECT_TRUE(
      read(png_file(1, 1, rgb_alpha, 8, std::string("\0abc\0", 5))).equal(bytes({'a', 'b', 'c'}, {3, 1, 1})));
  EXPECT_TRUE(read(png_file(1, 1, rgb, 16, std::string("\0\0\0\x80\x80\xff\xff", 7)))
                  .equal(bytes({0, 128, 255}, {3, 1, 1})));
  const std::string colours = png_chunk("PLTE", "rgbRGB") + png_chunk("tRNS", std::string("\0", 1));
  EXPECT_TRUE(read(png_file(2, 1, palette, 1, std::string("\0\x40", 2), colours))
                  .equal(bytes({'r', 'R', 'g', 'G', 'b', 'B'}, {3, 1, 2})));
  // Interlaced, 2 x 2: the first pixel, its right neighbour, then the second row.
  EXPECT_TRUE(read(png_file(2, 2, grey, 8, std::string("\0\1\0\2\0\3\4", 7), "", 1))
                  .equal(bytes({1, 2, 3, 4}, {1, 2, 2})));
  // Filters: the second row is stored as differences from the first.
  EXPECT_TRUE(
      read(png_file(2, 2, grey, 8, std::string("\0\5\6\2\1\1", 6))).equal(bytes({5, 6, 6, 7}, {1, 2, 2})));
}

TEST_F(Png, RefusesEveryPrefix) {
  const std::string file = plain_png(3, 2, 100, rgb);
  expect_every_prefix_refused(folder_, "a.png", file, [](const std::string& path) { read_png(path); });
}

// Whatever byte is damaged, the file is read or refused by name; most bytes are under a checksum.
TEST_F(Png, SurvivesEveryDamagedByte) {
  const std::string colours = png_chunk("PLTE", "rgbRGB") + png_chunk("tEXt", std::string("a\0b", 3));
  for (const std::string& whole :
       {plain_png(3, 2, 100, rgb), png_file(5, 2, palette, 2, std::string("\0\x11\x40\0\x55\0", 6), colours),
        png_file(2, 2, grey, 16, std::string(10, '\0'), "", 1)}) {
    int refused = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string file = whole;
        file[i] = static_cast<char>(file[i] ^ flip);
        const std::string found = message(file);
        if (found == "nothing was thrown") continue;
        ++refused;
        ASSERT_THAT(found, StartsWith(folder_.at("a.png") + ": byte"));
      }
    }
    EXPECT_GT(refused, static_cast<int>(whole.size()));
  }
}

TEST_F(Png, RefusesAbsurdSizesBeforeTakingMemory) {
  EXPECT_THAT(message(png_file(16384, 16384, rgb_alpha, 16, "x")),
              AllOf(HasSubstr("16384 x 16384 in"), HasSubstr("a size that the file's bytes can hold")));
  EXPECT_THAT(message(png_file(16385, 1, grey, 8, "x")), HasSubstr("a side above 16384 pixels"));
  EXPECT_THAT(message(png_file(1, 2147483647, grey, 8, "x")), HasSubstr("a side above 16384 pixels"));
  EXPECT_THAT(message(png_file(0, 1, grey, 8, "x")), HasSubstr("damaged"));
  EXPECT_THAT(message(png_file(2, 2, grey, 8, "x")), HasSubstr("damaged"));  // too few pixels
  EXPECT_THAT(message(png_file(1, 1, grey, 3, "x")), HasSubstr("damaged"));
  const std::string text = big_endian(0x61000003) + "tEXtk";
  EXPECT_THAT(message(png_file(1, 1, grey, 8, "xx", text)),
              HasSubstr("byte 33: expected a chunk 'tEXt' of 1627389955"));
  EXPECT_THAT(message("GIF89a"), HasSubstr("no signature of PNG"));
  EXPECT_THAT(message(""), HasSubstr("an empty file"));
}

TEST(Resize, TakesMeansAndInterpolates) {
  const Tensor images = at::tensor({0, 10, 100, 200, 20, 30, 255, 255}).to(at::kByte).view({1, 1, 2, 4});
  EXPECT_TRUE(resize_images(images, 1).equal(at::tensor({109}).to(at::kByte).view({1, 1, 1, 1})));
  // The width shrinks to means of two, the height stays.
  EXPECT_TRUE(resize_images(images, 2).equal(at::tensor({5, 150, 25, 255}).to(at::kByte).view({1, 1, 2, 2})));
  // The height grows: rows at -1/4, 1/4, 3/4 and 5/4 of the distance of the two.
  const Tensor larger = resize_images(images, 4).squeeze();
  EXPECT_TRUE(larger.select(1, 0).equal(at::tensor({0, 5, 15, 20}).to(at::kByte)));
  EXPECT_TRUE(resize_images(images.expand({5, 3, 2, 4}), 4)[4][2].equal(larger));
  const Tensor square = at::zeros({1, 3, 7, 7}, at::kByte);
  EXPECT_TRUE(resize_images(square, 7).is_same(square));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { resize_images(images, 0); }),
              HasSubstr("image_size = 0"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { resize_images(images, 16385); }),
              HasSubstr("1 to 16384"));
}

TEST_F(ImageFolder, ReadsClassesAndFilesInTheirOrder) {
  folder_.put("dog/b.png", plain_png(3, 2, 20));
  folder_.put("dog/a.PNG", plain_png(3, 2, 10));
  folder_.put("cat/10.png", plain_png(3, 2, 30));
  folder_.put("cat/9.png", plain_png(3, 2, 40));
  folder_.put("cat/notes.txt", "passed over");
  folder_.put(".hidden/x.png", "passed over");
  folder_.put("README.md", "passed over");
  const FolderImages all = read_image_folder(folder_.path());
  EXPECT_THAT(all.class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(all.images.sizes(), (std::vector<int64_t>{4, 1, 2, 3}));
  EXPECT_TRUE(all.labels.equal(at::tensor({0, 0, 1, 1}).to(at::kLong)));
  EXPECT_TRUE(all.images.select(3, 0).select(2, 0).squeeze(1).equal(bytes({30, 40, 10, 20}, {4})));
  // One image in colour gives all of them three channels.
  folder_.put("dog/c.png", plain_png(3, 2, 50, rgb));
  const FolderImages colour = read_image_folder(folder_.path());
  EXPECT_EQ(colour.images.sizes(), (std::vector<int64_t>{5, 3, 2, 3}));
  EXPECT_TRUE(colour.images[0].eq(30).all().item<bool>());
}

TEST_F(ImageFolder, BringsPicturesOfSeveralSizesToTheMostCommonOrTheSmallest) {
  folder_.put("cat/a.png", plain_png(3, 2, 20));
  folder_.put("dog/a.png", plain_png(4, 4, 10));
  EXPECT_EQ(read_image_folder(folder_.path()).images.sizes(), (std::vector<int64_t>{2, 1, 2, 3}));
  folder_.put("dog/b.png", plain_png(4, 4, 30));
  const FolderImages common = read_image_folder(folder_.path());
  EXPECT_EQ(common.images.sizes(), (std::vector<int64_t>{3, 1, 4, 4}));
  EXPECT_EQ(common.resized, 1);
  EXPECT_EQ(common.note,
            folder_.path() +
                ": pictures of 2 sizes: all were resized to 4 x 4 pixels (width x height), the size "
                "of 2 of 3; --image-size chooses another");
  folder_.put("cat/b.png", plain_png(5, 3, 20));
  folder_.put("cat/c.png", plain_png(6, 5, 20));
  const FolderImages smallest = read_image_folder(folder_.path());
  EXPECT_EQ(smallest.images.sizes(), (std::vector<int64_t>{5, 1, 2, 3}));
  EXPECT_THAT(smallest.note, HasSubstr("the size of the smallest one"));
  const FolderImages all = read_image_folder(folder_.path(), square(5));
  EXPECT_EQ(all.images.sizes(), (std::vector<int64_t>{5, 1, 5, 5}));
  EXPECT_EQ(all.note, "");
  EXPECT_TRUE(all.images[0].eq(20).all().item<bool>());
}

TEST_F(ImageFolder, NamesWhatDoesNotBelong) {
  const auto message = [&] { return message_of([&] { read_image_folder(folder_.path()); }); };
  EXPECT_THAT(message(), HasSubstr("two or more folders, one for each class, found none"));
  folder_.put("cat/a.png", plain_png(3, 2, 20));
  EXPECT_THAT(message(), HasSubstr("only cat"));
  folder_.put("dog/readme", "");
  EXPECT_THAT(message(), AllOf(StartsWith(folder_.at("dog")), HasSubstr("found none")));
  const std::string webp = folder_.put("dog/a.WEBP", "");
  EXPECT_THAT(message(), AllOf(StartsWith(webp), HasSubstr("convert the images to PNG or JPEG")));
  std::remove(webp.c_str());
  const std::string broken = folder_.put("dog/a.png", plain_png(3, 2, 20).substr(0, 50));
  EXPECT_THAT(message(), StartsWith(broken + ": byte"));
  folder_.put("dog/a.png", plain_png(3, 2, 20));
  EXPECT_EQ(message(), "nothing was thrown");
  folder_.put("stray.png", "");
  EXPECT_THAT(message(), AllOf(StartsWith(folder_.at("stray.png")), HasSubstr("folder of its class")));
  std::remove(folder_.at("stray.png").c_str());
  folder_.put("dog/deeper/a.png", "");
  EXPECT_THAT(message(), AllOf(StartsWith(folder_.at("dog/deeper")), HasSubstr("train/ and test/")));
  EXPECT_THAT(message_of([&] { read_image_folder(folder_.at("nowhere")); }),
              AllOf(StartsWith(folder_.at("nowhere")), HasSubstr("check the path")));
}

TEST(PngMissing, SaysWhatToInstall) {
  if (has_png()) GTEST_SKIP() << "SKIPPED: built with libpng";
  EXPECT_THAT(message_of([] { read_png("a.png"); }), HasSubstr("install libpng-dev"));
}

}  // namespace
}  // namespace bilevel::test
