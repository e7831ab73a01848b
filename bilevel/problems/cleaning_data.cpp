#include "bilevel/problems/cleaning_data.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/problems/label_noise.h"

namespace bilevel {
namespace {

[[noreturn]] void fail(const std::string& file, std::string_view expected, std::string_view found,
                       std::string_view hint) {
  throw std::runtime_error(fmt::format("{}: expected {}, found {}; {}", file, expected, found, hint));
}

std::string shape_text(const Tensor& array) {
  return fmt::format("shape ({})", fmt::join(array.sizes(), ", "));
}

Tensor read_features(const std::string& file) {
  Tensor features = read_npy(file);
  if (features.dim() != 2) {
    fail(file, "a matrix of features, examples x features", shape_text(features),
         "flatten each example: X.reshape(len(X), -1)");
  }
  if (features.numel() == 0) {
    fail(file, "at least one example and one feature", shape_text(features),
         "was the selection that wrote it empty?");
  }
  if (!features.is_floating_point()) {
    fail(file, "features of a floating type", c10::toString(features.scalar_type()),
         "scale them and save X.astype('float32')");
  }
  const Tensor bad = features.isfinite().logical_not().nonzero();
  if (bad.size(0) > 0) {
    const auto row = bad[0][0].item<int64_t>();
    const auto column = bad[0][1].item<int64_t>();
    fail(file, "finite features",
         fmt::format("{} at row {}, column {} ({} in all)", features[row][column].item<double>(), row, column,
                     bad.size(0)),
         "drop or fill such examples first");
  }
  return features;
}

Tensor read_labels(const std::string& file, const std::string& features_file, int64_t examples) {
  Tensor labels = read_npy(file);
  if (labels.dim() != 1) {
    fail(file, "a vector of labels", shape_text(labels),
         "save one integer per example, y.reshape(-1), not one-hot rows");
  }
  if (!at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) {
    fail(file, "labels of an integer type", c10::toString(labels.scalar_type()), "save y.astype('int64')");
  }
  if (labels.size(0) != examples) {
    fail(file, fmt::format("{} labels, one per row of {}", examples, features_file),
         fmt::format("{}", labels.size(0)), "give the labels of the same examples");
  }
  labels = labels.to(at::kLong);
  const auto smallest = labels.min().item<int64_t>();
  if (smallest < 0) {
    fail(file, "labels 0, 1, 2, ...", fmt::format("the label {}", smallest),
         "number the classes from 0; drop unlabelled examples");
  }
  return labels;
}

int64_t count_classes(const std::string& file, const Tensor& labels) {
  const int64_t largest = labels.max().item<int64_t>();
  if (largest == 0) {
    fail(file, "at least two classes", "only label 0", "with one class there is nothing to classify");
  }
  const char* hint = "number the classes 0 .. classes-1 without gaps: np.unique(y, return_inverse=True)[1]";
  if (largest >= labels.size(0)) {  // before anything of that many classes is allocated
    fail(file, "every class from 0 to the largest label at least once",
         fmt::format("the label {} among only {} examples", largest, labels.size(0)), hint);
  }
  const Tensor missing = at::bincount(labels, {}, largest + 1).eq(0).nonzero();
  if (missing.size(0) > 0) {
    fail(file, "every class from 0 to the largest label at least once",
         fmt::format("no example of class {} (the largest label is {})", missing[0][0].item<int64_t>(),
                     largest),
         hint);
  }
  return largest + 1;
}

LabelledExamples append_ones(const LabelledExamples& examples) {
  const Tensor ones = at::ones({examples.size(), 1}, examples.features.options());
  return {at::cat({examples.features, ones}, 1), examples.labels};
}

}  // namespace

CleaningData CleaningData::to(const at::TensorOptions& options) const {
  CleaningData moved{train.to(options), valid.to(options), classes, replaced, wrong};
  if (replaced.defined()) moved.replaced = replaced.to(options.device());
  if (wrong.defined()) moved.wrong = wrong.to(options.device());
  return moved;
}

CleaningData CleaningData::with_bias() const {
  return {append_ones(train), append_ones(valid), classes, replaced, wrong};
}

CleaningData draw_cleaning_data(const SyntheticCleaningOptions& options, uint64_t seed) {
  CleaningData data;
  data.classes = options.data.classes;
  data.train = draw_gaussian_classes(options.data, options.samples, seed, "train");
  data.valid = draw_gaussian_classes(options.data, options.valid_samples, seed, "valid");
  Random random(named_seed(seed, "label-noise"));
  NoisyLabels noisy = replace_labels(data.train.labels, data.classes, options.label_noise, random);
  data.train.labels = std::move(noisy.labels);
  data.replaced = std::move(noisy.replaced);
  data.wrong = std::move(noisy.wrong);
  return data;
}

CleaningData read_cleaning_files(const CleaningFiles& files) {
  for (const auto& [option, path] :
       {std::pair<const char*, const std::string&>{"train_features", files.train_features},
        std::pair<const char*, const std::string&>{"train_labels", files.train_labels},
        std::pair<const char*, const std::string&>{"valid_features", files.valid_features},
        std::pair<const char*, const std::string&>{"valid_labels", files.valid_labels}}) {
    if (path.empty()) {
      throw std::invalid_argument(
          fmt::format("{} is missing: hyper-cleaning on your own data needs train_features, train_labels, "
                      "valid_features and valid_labels",
                      option));
    }
  }
  CleaningData data;
  data.train.features = read_features(files.train_features);
  data.train.labels = read_labels(files.train_labels, files.train_features, data.train.features.size(0));
  data.classes = count_classes(files.train_labels, data.train.labels);
  data.valid.features = read_features(files.valid_features);
  if (data.valid.features.size(1) != data.train.features.size(1)) {
    fail(files.valid_features,
         fmt::format("{} features, as in {}", data.train.features.size(1), files.train_features),
         fmt::format("{}", data.valid.features.size(1)), "prepare both sets in the same way");
  }
  data.valid.labels = read_labels(files.valid_labels, files.valid_features, data.valid.features.size(0));
  const auto largest = data.valid.labels.max().item<int64_t>();
  if (largest >= data.classes) {
    fail(files.valid_labels, fmt::format("labels 0 .. {}, as in {}", data.classes - 1, files.train_labels),
         fmt::format("the label {}", largest), "number the classes of both sets alike");
  }
  return data;
}

}  // namespace bilevel
