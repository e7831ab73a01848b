// Inflating takes little and libzip works one thread at a time, so the files are read in turn and decoded
// side by side.
#include "bilevel/data/omniglot.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/parallel_files.h"
#include "bilevel/data/png.h"
#include "bilevel/data/resize.h"
#include "bilevel/data/zip.h"

namespace bilevel {
namespace {

constexpr int64_t largest_png = 1 << 20;  // theirs have 500 bytes or fewer
constexpr int64_t largest_set = int64_t{1} << 30;

struct File {
  std::string shown;  // in messages
  std::string bytes;
};
using Characters = std::map<std::string, std::map<std::string, File>>;  // by class, by file name

bool is_file(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

// What archivers of other systems leave behind.
bool is_litter(std::string_view name) { return name.starts_with('.') || name == "__MACOSX"; }

void add(Characters& characters, const std::string& alphabet, const std::string& character,
         const std::string& name, File file) {
  auto& files = characters[fmt::format("{}/{}", alphabet, character)];
  const auto [place, is_new] = files.emplace(name, File{});
  if (!is_new) file_error(file.shown, "every drawing once", "another of the same name", "remove one of them");
  place->second = std::move(file);
}

std::vector<std::string> steps_of(std::string_view name) {
  std::vector<std::string> steps;
  for (;;) {
    const size_t slash = name.find('/');
    steps.emplace_back(name.substr(0, slash));
    if (slash == std::string_view::npos) return steps;
    name.remove_prefix(slash + 1);
  }
}

constexpr std::string_view layout = "PART/ALPHABET/CHARACTER/DRAWING.png";

void read_archive(const std::string& path, Characters& characters) {
  ZipLimits limits;
  limits.member_bytes = largest_png;
  limits.total_bytes = largest_set;
  const ZipArchive archive(path, limits);
  const size_t before = characters.size();
  for (size_t i = 0; i < archive.members().size(); ++i) {
    const ZipMember& member = archive.members()[i];
    const std::vector<std::string> steps = steps_of(member.name);
    if (member.folder || std::any_of(steps.begin(), steps.end(), is_litter)) continue;
    if (steps.size() != 4 || !steps[3].ends_with(".png")) {
      file_error(fmt::format("{}: member {}", path, member.name), layout, "another name",
                 "is it an archive of Omniglot's images?");
    }
    add(characters, steps[1], steps[2], steps[3],
        {fmt::format("{}: member {}", path, member.name), archive.read(i)});
  }
  if (characters.size() == before)
    file_error(path, fmt::format("members {}", layout), "none", "is it Omniglot's archive?");
}

void read_folder(const std::string& path, Characters& characters) {
  const size_t before = characters.size();
  int64_t total = 0;
  for (const std::string& alphabet : names_in(path)) {
    const std::string alphabet_path = fmt::format("{}/{}", path, alphabet);
    if (!is_folder(alphabet_path) || is_litter(alphabet)) continue;
    for (const std::string& character : names_in(alphabet_path)) {
      const std::string character_path = fmt::format("{}/{}", alphabet_path, character);
      if (!is_folder(character_path)) {
        file_error(character_path, "a folder for each character", "a file",
                   fmt::format("the layout is {}", layout));
      }
      bool empty = true;
      for (const std::string& name : names_in(character_path)) {
        if (!name.ends_with(".png")) continue;
        const std::string file = fmt::format("{}/{}", character_path, name);
        std::string bytes = read_file(file, largest_png);
        total += static_cast<int64_t>(bytes.size());
        if (total > largest_set) {
          file_error(file, fmt::format("images of at most {} bytes in all", largest_set), "more",
                     "is it Omniglot?");
        }
        add(characters, alphabet, character, name, {file, std::move(bytes)});
        empty = false;
      }
      if (empty) {
        file_error(character_path, "PNG files of the character", "none",
                   "remove the folder, or unpack the archive again");
      }
    }
  }
  if (characters.size() == before)
    file_error(path, fmt::format("files {}", layout), "none", "unpack the archive again");
}

// One drawing, rescaled: 1 x 1 x size x size. One at a time fits into a cache.
Tensor decode(const File& file, const File& first, int64_t height, int64_t width, int64_t size) {
  const Tensor image = decode_png(file.bytes, file.shown);
  if (image.size(0) != 1 || image.size(1) != height || image.size(2) != width) {
    file_error(file.shown, fmt::format("{} x {} grey pixels as in {}", width, height, first.shown),
               fmt::format("{} x {}{}", image.size(2), image.size(1), image.size(0) == 1 ? "" : " in colour"),
               "take the official files, or give your own images as a folder of class folders");
  }
  return resize_images(image.unsqueeze(0), size);
}

}  // namespace

void OmniglotOptions::validate() const {
  if (image_size < 1 || image_size > 105) {
    throw std::invalid_argument(fmt::format("image_size = {}: must be 1 to Omniglot's 105", image_size));
  }
  if (folder.empty()) {
    throw std::invalid_argument(
        "Omniglot's folder is not given: name the one that holds images_background.zip and "
        "images_evaluation.zip");
  }
}

ClassImages read_omniglot(const OmniglotOptions& options) {
  options.validate();
  Characters characters;
  for (const char* part : {"images_background", "images_evaluation"}) {
    const std::string path = fmt::format("{}/{}", options.folder, part);
    if (is_file(path + ".zip")) {
      read_archive(path + ".zip", characters);
    } else if (is_folder(path)) {
      read_folder(path, characters);
    } else {
      file_error(
          options.folder, fmt::format("{0}.zip, or the folder {0}", part), "neither",
          "download both archives from https://github.com/brendenlake/omniglot (folder python) and name "
          "their folder");
    }
  }
  ClassImages result;
  std::vector<const File*> files;
  for (const auto& [name, drawings] : characters) {
    result.names.push_back(name);
    result.begin.push_back(result.begin.back() + static_cast<int64_t>(drawings.size()));
    for (const auto& [unused, file] : drawings) files.push_back(&file);
  }
  const File& first = *files.front();
  const Tensor sample = decode_png(first.bytes, first.shown);
  const int64_t size = options.image_size;
  result.images =
      at::empty({result.begin.back(), 1, size, size}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  uint8_t* const images = result.images.data_ptr<uint8_t>();
  parallel_files(result.begin.back(), [&](int64_t i) {
    const Tensor image = decode(*files[static_cast<size_t>(i)], first, sample.size(1), sample.size(2), size);
    std::memcpy(images + i * size * size, image.data_ptr<uint8_t>(), static_cast<size_t>(size * size));
  });
  return result;
}

}  // namespace bilevel
