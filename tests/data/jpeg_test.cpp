// JPEG files that libjpeg wrote here, whole and damaged, in folders beside PNG.
#include "bilevel/data/jpeg.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "bilevel/data/image_folder.h"
#include "bilevel/data/picture.h"
#include "tests/data/files.h"
#include "tests/data/png_files.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Smooth, so that little is lost.
Tensor slope(int64_t channels, int64_t height, int64_t width) {
  const Tensor rows = at::arange(height).view({1, height, 1}) * 3;
  const Tensor columns = at::arange(width).view({1, 1, width}) * 2;
  const Tensor colours = at::arange(channels).view({channels, 1, 1}) * 40;
  return (rows + columns + colours + 20).clamp(0, 255).to(at::kByte);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

class Jpeg : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_jpeg()) GTEST_SKIP() << "SKIPPED: built without libjpeg";
  }
  TemporaryFolder folder_;
};

TEST_F(Jpeg, GreyAndColourComeBackNearlyAsTheyWere) {
  for (const int64_t channels : {1, 3}) {
    const Tensor image = slope(channels, 21, 34);
    const std::string path = folder_.put("a.jpg", write_jpeg(image, 100));
    const Tensor read = read_picture(path);
    ASSERT_EQ(read.sizes(), image.sizes());
    EXPECT_EQ(picture_size(path), (PictureSize{21, 34}));
    EXPECT_LE(largest_difference(read, image), channels == 1 ? 1 : 4);
  }
}

TEST_F(Jpeg, RefusesEveryFileThatIsCutShort) {
  const std::string whole = write_jpeg(slope(3, 40, 40), 75);
  for (size_t length = 0; length + 2 < whole.size(); length += 7) {
    const std::string path = folder_.put("a.jpg", whole.substr(0, length));
    EXPECT_THAT(message_of([&] { read_picture(path); }), StartsWith(path)) << length;
  }
}

// The frame's header promises 16000 x 16000 pixels: no memory is taken for them.
TEST_F(Jpeg, HoldsTheSizeAgainstTheFile) {
  std::string bytes = write_jpeg(slope(1, 16, 16), 75);
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const size_t at : {frame + 5, frame + 7}) bytes.replace(at, 2, "\x3e\x80");
  const std::string path = folder_.put("a.jpg", bytes);
  EXPECT_THAT(message_of([&] { read_picture(path); }),
              AllOf(StartsWith(path), HasSubstr("16000 x 16000 in "), HasSubstr("damaged")));
  for (const size_t at : {frame + 5, frame + 7}) bytes.replace(at, 2, "\xea\x60");
  EXPECT_THAT(message_of([&] { decode_jpeg(bytes, "a.jpg"); }),
              HasSubstr("a.jpg: expected sides of at most 16384 pixels, found 60000 x 60000"));
}

TEST_F(Jpeg, LiesInFoldersBesidePngUnderAnyName) {
  folder_.put("red fox/1.JPG", write_jpeg(slope(3, 8, 8), 100));
  folder_.put("red fox/2.jpeg", plain_png(8, 8, 50));  // many a .jpg is a PNG
  folder_.put("éclair/1.png", plain_png(8, 8, 60));
  const FolderImages all = read_image_folder(folder_.path());
  EXPECT_THAT(all.class_names, ElementsAre("red fox", "éclair"));
  EXPECT_EQ(all.images.sizes(), (std::vector<int64_t>{3, 3, 8, 8}));
  EXPECT_LE(largest_difference(all.images[0], slope(3, 8, 8)), 4);
  EXPECT_TRUE(all.images[1].eq(50).all().item<bool>());
  const std::string text = folder_.put("red fox/3.jpg", "GIF89a");
  EXPECT_THAT(message_of([&] { read_image_folder(folder_.path()); }),
              AllOf(StartsWith(text), HasSubstr("expected a PNG or JPEG image")));
}

TEST(JpegMissing, SaysWhatToInstall) {
  if (has_jpeg()) GTEST_SKIP() << "SKIPPED: built with libjpeg";
  EXPECT_THAT(message_of([] { decode_jpeg("\xff\xd8\xff", "a.jpg"); }), HasSubstr("install libjpeg-dev"));
}

}  // namespace
}  // namespace bilevel::test
