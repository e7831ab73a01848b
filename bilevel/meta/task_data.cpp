#include "bilevel/meta/task_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bilevel/data/folder.h"
#include "bilevel/data/omniglot.h"
#include "bilevel/data/resize.h"
#include "bilevel/data/sha256.h"
#include "bilevel/meta/blobs.h"
#include "bilevel/meta/fc100.h"
#include "bilevel/meta/sinusoids.h"
#include "bilevel/meta/table_tasks.h"
#include "bilevel/meta/task_folder.h"

namespace bilevel::meta {
namespace {

// Ink is 1 and paper 0, as the papers that learn on Omniglot have it (MAML's and Matching Networks' among
// them): most pixels are then zero, and so is the padding of a convolution.
const PixelScale ink{{255}, {-255}};

ImageTaskSet omniglot_set(const TaskDataOptions& o) {
  const std::string below = o.folder + "/omniglot";
  ImageTaskSet set;
  set.name = "omniglot";
  set.images = read_omniglot({is_folder(below) ? below : o.folder, o.image_size > 0 ? o.image_size : 28});
  // "a random subset of 1200 of the 1623 Omniglot characters", 100 and the remaining 323 (Shaban et al. 2019,
  // appendix G.3).
  set.parts = split_classes(set.images.classes(), 1200, 100, 323, named_seed(o.seed, "omniglot"));
  set.scale = ink;
  return set;
}

ImageTaskSet image_set_of(const TaskDataOptions& o) {
  if (o.data == "omniglot") return omniglot_set(o);
  if (o.data == "fc100") return read_fc100(o.folder);
  return read_task_folder(o.data, o.image_size);
}

// Where the files lie does not matter, nor what their folders are called beyond the order that gives.
std::string digest_of(const ImageTaskSet& set) {
  Sha256 digest;
  const auto add = [&](const void* bytes, int64_t count, size_t each) {
    digest.add({reinterpret_cast<const char*>(&count), sizeof count});
    digest.add({static_cast<const char*>(bytes), static_cast<size_t>(count) * each});
  };
  const auto add_numbers = [&](const std::vector<int64_t>& numbers) {
    add(numbers.data(), static_cast<int64_t>(numbers.size()), sizeof(int64_t));
  };
  const Tensor images = set.images.images.contiguous();
  add_numbers(images.sizes().vec());
  add(images.data_ptr(), images.numel(), static_cast<size_t>(images.element_size()));
  add_numbers(set.images.begin);
  for (const Part part : {Part::train, Part::valid, Part::test}) add_numbers(set.parts.of(part));
  return digest.hex();
}

std::string digest_of_rows(const TableTaskSet& set) {
  Sha256 digest;
  for (const Tensor& tensor : {set.rows.contiguous(), set.labels.contiguous()}) {
    for (const int64_t size : tensor.sizes()) digest.add({reinterpret_cast<const char*>(&size), sizeof size});
    digest.add({static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()});
  }
  return digest.hex();
}

std::string summary_of(const TaskData& data, const std::string& note) {
  const TaskSource& source = *data.source;
  return fmt::format("{}: inputs of {}; {} training, {} validation and {} test classes{}", data.name,
                     fmt::join(source.input_shape(), " x "), source.classes(Part::train),
                     source.classes(Part::valid), source.classes(Part::test), note);
}

bool is_known_by_name(const std::string& data) {
  const std::vector<std::string> names = task_data_names();
  return std::find(names.begin(), names.end(), data) != names.end();
}

bool is_table(const std::string& data) {
  return !is_known_by_name(data) && std::filesystem::is_regular_file(data);
}

}  // namespace

bool are_points(const std::string& data) { return data == "blobs" || data == "sinusoids" || is_table(data); }

std::vector<std::string> task_data_names() { return {"blobs", "sinusoids", "omniglot", "fc100"}; }

void TaskDataOptions::validate() const {
  shape.validate();
  const std::vector<std::string> names = task_data_names();
  const bool named = is_known_by_name(data);
  const bool table = is_table(data);
  if (!named && !is_folder(data) && !table) {
    throw std::invalid_argument(
        fmt::format("data = {}: must be one of {}, a folder with a subfolder of PNG or JPEG files for each "
                    "class, or a table (CSV, TSV, svmlight, NPY or IDX)",
                    data, fmt::join(names, ", ")));
  }
  if (label_column != "last" && !table) {
    throw std::invalid_argument(fmt::format(
        "label_column = {}: applies to tables only; {} is not a table; leave it out", label_column, data));
  }
  if (!labels.empty() && !table) {
    throw std::invalid_argument(
        fmt::format("labels = {}: apply to tables only; {} is not a table; leave them out", labels, data));
  }
  if (image_size < 0 || image_size > largest_image_side) {
    throw std::invalid_argument(
        fmt::format("image_size = {}: must be 0 (the data's own) to {}", image_size, largest_image_side));
  }
  if (image_size > 0 && are_points(data)) {
    throw std::invalid_argument(
        fmt::format("image_size = {}: {} are not images; leave it out", image_size, data));
  }
  if (image_size > 0 && data == "fc100" && image_size != 32) {
    throw std::invalid_argument(
        fmt::format("image_size = {}: fc100's images have 32; leave it out", image_size));
  }
  if (!at::isFloatingType(c10::typeMetaToScalarType(tensors.dtype()))) {
    throw std::invalid_argument("tensors: the dtype of inputs must be a floating type");
  }
}

TaskData load_task_data(const TaskDataOptions& o) {
  o.validate();
  TaskData result;
  result.name = o.data;
  if (o.data == "blobs") {
    result.source = std::make_unique<Blobs>(o.shape, BlobsOptions{}, o.seed, o.tensors);
  } else if (o.data == "sinusoids") {
    result.source = std::make_unique<Sinusoids>(o.shape, SinusoidsOptions{}, o.seed, o.tensors);
    result.summary =
        fmt::format("sinusoids: {} points to learn from, {} to be judged by", o.shape.shots, o.shape.queries);
    return result;
  } else if (is_table(o.data)) {
    TableTaskSet set = read_task_table(o.data, o.labels, o.label_column);
    result.digest = digest_of_rows(set);
    auto tasks = std::make_unique<TableTasks>(std::move(set), o.shape, o.seed, o.tensors);
    result.rows = tasks->scale();
    result.source = std::move(tasks);
  } else {
    ImageTaskSet set = image_set_of(o);
    set.name = o.data;
    return task_data_of(std::move(set), o);
  }
  result.summary = summary_of(result, "");
  return result;
}

ImageTaskSet task_set_of(const LabelledImages& images, const std::vector<std::string>& class_names) {
  ImageTaskSet set;
  set.name = "images";
  set.images = group_by_class(images.images, images.labels, class_names);
  set.parts = split_classes(set.images.classes(), 64, 16, 20, /*seed=*/0);
  set.scale = training_scale(set.images, set.parts);
  return set;
}

TaskData task_data_of(ImageTaskSet set, const TaskDataOptions& o) {
  TaskData result;
  result.name = set.name;
  result.digest = digest_of(set);
  result.scale = set.scale;
  const std::string note = set.note.empty() ? "" : "; " + set.note;
  result.source = std::make_unique<ImageTasks>(std::move(set), o.shape, o.seed, o.tensors);
  result.summary = summary_of(result, note);
  return result;
}

}  // namespace bilevel::meta
