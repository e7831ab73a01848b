// Data that may be larger than memory: what is read through mapped files is what is read into memory, and
// takes no memory of its own.
#include "bilevel/data/large_tensor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "bilevel/data/augment.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/image_data.h"
#include "bilevel/data/image_folder.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"
#include "tests/cli/image_files.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

// While it lives, data of so many bytes are kept in files.
class MapFrom {
 public:
  explicit MapFrom(int64_t bytes) { ::setenv("BILEVEL_MAP_BYTES", std::to_string(bytes).c_str(), 1); }
  ~MapFrom() { ::unsetenv("BILEVEL_MAP_BYTES"); }
  MapFrom(const MapFrom&) = delete;
  MapFrom& operator=(const MapFrom&) = delete;
};

// Memory of this process that no file stands behind, in bytes.
int64_t anonymous_memory() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return -1;
}

bool has_a_file_behind_it(const Tensor& tensor) {
  const auto address = reinterpret_cast<uint64_t>(tensor.data_ptr());
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device;
    uint64_t node = 0;
    words >> range >> rights >> offset >> device >> node;
    const size_t dash = range.find('-');
    if (address >= std::stoull(range.substr(0, dash), nullptr, 16) &&
        address < std::stoull(range.substr(dash + 1), nullptr, 16)) {
      return node != 0;
    }
  }
  return false;
}

void expect_the_same_mapped(const std::function<Tensor()>& read) {
  const Tensor in_memory = read();
  EXPECT_FALSE(has_a_file_behind_it(in_memory));
  const MapFrom small(100);
  Tensor mapped = read();
  EXPECT_TRUE(has_a_file_behind_it(mapped));
  EXPECT_TRUE(at::equal(mapped, in_memory));
  mapped.zero_();  // a copy of its own
  EXPECT_TRUE(at::equal(read(), in_memory));
}

TEST(LargeData, IdxCifarNpyAndFoldersAreReadAsInMemory) {
  const TemporaryFolder folder;
  const Tensor pixels = at::arange(40 * 3 * 5 * 4).remainder(251).to(at::kByte).view({40, 3, 5, 4});
  put(folder / "images", idx({40, 3, 5, 4}, pixels));
  expect_the_same_mapped([&] { return read_idx(folder / "images"); });
  ASSERT_EQ(std::system(("gzip -k '" + folder / "images" + "'").c_str()), 0);
  expect_the_same_mapped([&] { return read_idx(folder / "images.gz"); });

  std::string records;
  for (int i = 0; i < 7; ++i) records += static_cast<char>(i) + std::string(3072, static_cast<char>(40 + i));
  put(folder / "records.bin", records);
  expect_the_same_mapped([&] { return read_cifar10(folder / "records.bin").images; });
  EXPECT_TRUE(at::equal(read_cifar10(folder / "records.bin").labels, at::arange(7)));

  write_npy(folder / "a.npy", at::arange(300, at::kDouble).view({30, 10}));
  expect_the_same_mapped([&] { return read_npy(folder / "a.npy"); });

  const Tensor rows = at::arange(39, -1, -3, at::kLong);
  expect_the_same_mapped([&] { return select_rows(pixels, rows); });
  EXPECT_TRUE(at::equal(select_rows(pixels, rows), pixels.index_select(0, rows)));
  expect_the_same_mapped([&] { return resize_images(pixels, {3, 3}); });

  if (!has_png()) return;
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png";
    folder.put("pictures/" + name, grey_png(4, 5, std::string(20, static_cast<char>(i + 1))));
  }
  expect_the_same_mapped([&] { return read_image_folder(folder / "pictures", PictureSize{}).images; });
}

TEST(LargeData, AMappedFileThatGoesOnOrIsCutIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = idx({40, 5, 4}, at::ones({40, 5, 4}));
  const MapFrom small(100);
  put(folder / "long", whole + "x");
  EXPECT_THROW(read_idx(folder / "long"), std::runtime_error);
  put(folder / "short", whole.substr(0, 700));
  EXPECT_THROW(read_idx(folder / "short"), std::runtime_error);
  ::setenv("BILEVEL_MAP_BYTES", "1e6", 1);
  EXPECT_THROW(bytes_to_map(), std::invalid_argument);
  ::setenv("BILEVEL_MAP_BYTES", "100", 1);
  const std::string before = std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "";
  ::setenv("TMPDIR", (folder / "nowhere").c_str(), 1);
  EXPECT_THROW(empty_in_memory_or_file({1000}, at::kByte), std::runtime_error);
  before.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before.c_str(), 1);
}

// 74 MB of images: a set that stands for one larger than memory. Loading it, holding out a test set and
// preparing batches of it takes a few MB; in memory it takes all of them.
TEST(LargeData, TakesLittleMemory) {
  const TemporaryFolder folder;
  constexpr int64_t count = 6000, size = 3 * 64 * 64;
  {
    std::ofstream images(folder / "images", std::ios::binary);
    const std::string head = idx({count, 3, 64, 64}, at::empty({0}));
    images.write(head.data(), static_cast<std::streamsize>(head.size()));
    for (int64_t i = 0; i < count; ++i) {
      const std::string image(size, static_cast<char>(i % 256));
      images.write(image.data(), size);
    }
    put(folder / "labels", idx({count}, at::arange(count).remainder(4)));
  }
  const ImageDataOptions from{.data = folder / "images", .labels = folder / "labels"};
  const int64_t before = anonymous_memory();
  int64_t taken = 0;
  double sum = 0;
  const auto use = [&] {
    const ImageData data = load_image_data(from);
    const DeviceImages train(data.train.images, data.train.labels, data.mean, data.std, at::kFloat);
    sum = 0;
    for (int64_t first = 0; first + 50 <= train.size(); first += 50) {
      const Tensor batch = at::arange(first, first + 50, at::kLong);
      sum += train.part(batch, 25, 25, {}, 3).sum().item<double>();  // as the second of two ranks
    }
    taken = anonymous_memory() - before;
  };
  {
    const MapFrom small(1'000'000);
    use();
  }
  const double mapped_sum = sum;
  EXPECT_LT(taken, 16'000'000);
  use();
  EXPECT_EQ(sum, mapped_sum);
  EXPECT_GT(taken, 70'000'000) << "the measure itself";
}

}  // namespace
}  // namespace bilevel::test
