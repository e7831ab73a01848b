#include "bilevel/jobs/adapt.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "bilevel/data/csv_line.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/image_folder.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/picture.h"
#include "bilevel/data/resize.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/export_model.h"
#include "bilevel/jobs/learn_baseline.h"
#include "bilevel/meta/model_file.h"
#include "bilevel/meta/table_tasks.h"
#include "bilevel/meta/task_loss.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

AdaptJobOptions::AdaptJobOptions() { compute.dtype = "float"; }

const Fields<AdaptJobOptions>& AdaptJobOptions::fields() {
  static const Fields<AdaptJobOptions> table = [] {
    Fields<AdaptJobOptions> f;
    f.add(
         "run", [](auto& o) -> auto& { return o.run; },
         "folder of a `bilevel learn` run on images or a table, or a file exported from it")
        .required()
        .first();
    f.add(
         "support", [](auto& o) -> auto& { return o.support; },
         "known examples: a folder of class folders with a few PNG or JPEG files in each, or a table with "
         "labels")
        .required()
        .first();
    f.add(
         "support_labels", [](auto& o) -> auto& { return o.support_labels; },
         fmt::format("labels for a table without them: one for each row of {}", named("support")))
        .first();
    f.add(
         "images", [](auto& o) -> auto& { return o.images; }, "folder of PNG or JPEG files to recognise")
        .first();
    f.add(
         "data", [](auto& o) -> auto& { return o.data; },
         fmt::format("table of rows to recognise, in place of {}", named("images")))
        .first();
    f.add(
         "out", [](auto& o) -> auto& { return o.out; }, "CSV file to write the predictions to")
        .first();
    f.include(
        [](AdaptJobOptions & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

constexpr int64_t most_more_steps = 32;  // times as many inner steps as tasks were learned with

std::vector<std::string> files_to_recognise(const std::string& folder) {
  if (!is_folder(folder)) throw OptionError(fmt::format("{}: is not a folder", named("images", folder)));
  std::vector<std::string> files = picture_files(folder);
  if (files.empty()) {
    throw OptionError(fmt::format("{}: there is no PNG or JPEG file in it", named("images", folder)));
  }
  return files;
}

// Grey images serve a network that learned on colours; not the other way round.
Tensor with_channels(const Tensor& images, int64_t channels, const std::string& what) {
  if (images.size(1) == channels) return images;
  if (images.size(1) == 1) return images.expand({-1, channels, -1, -1});
  throw OptionError(
      fmt::format("{}: colour images, but the network was trained on grey ones: convert them to grey", what));
}

meta::LearnedModel load_learned(const std::string& run) {
  const std::string learned = run + "/model";
  const bool is_file = is_exported_file(run);
  if (!is_file && !std::filesystem::exists(learned) && !std::filesystem::exists(learned + ".previous")) {
    throw OptionError(
        fmt::format("{}: there is no model in it; give the folder of a `bilevel learn` run that has saved "
                    "one (`bilevel runs` lists them)",
                    named("run", run)));
  }
  meta::LearnedModel model = is_file ? learned_of(read_exported(run), run) : meta::load_model(learned);
  if (!model.rows && (model.input.size() != 3 || !model.scale)) {
    throw OptionError(
        fmt::format("{}: it learned on {}, which are neither images nor a table whose columns were saved",
                    named("run", run), model.data));
  }
  return model;
}

// What is known and what is not, as the network takes it: the known ones first.
struct AdaptInputs {
  Tensor inputs;
  Tensor labels;  // of the known ones
};

AdaptInputs read_pictures(const AdaptJobOptions& o, const meta::LearnedModel& model,
                          const at::TensorOptions& tensors, AdaptJobResult& result) {
  const int64_t channels = model.input[0];
  const PictureSize size{model.input[1], model.input[2]};
  const FolderImages support = read_image_folder(o.support, size);
  result.classes = support.class_names;
  result.files = files_to_recognise(o.images);
  std::vector<Tensor> images = {with_channels(support.images, channels, named("support", o.support))};
  for (const std::string& file : result.files) {
    images.push_back(with_channels(resize_images(read_picture(file).unsqueeze(0), size), channels, file));
  }
  return {meta::scale_pixels(at::cat(images), *model.scale, tensors), support.labels};
}

// Labels of the known rows: other classes than those that were learned from, and so not by the schema.
LabelledFeatures read_known_labels(const AdaptJobOptions& o, const TableSchema& schema) {
  FeatureFileOptions reading;
  if (schema.form == TableSchema::Form::table && o.support_labels.empty()) {
    if (schema.label_place < 0) {
      throw OptionError(fmt::format("{} is missing: the labels of the run's table are in a separate file",
                                    named("support_labels")));
    }
    reading.label_column = schema.has_header ? schema.label : fmt::format("{}", schema.label_place);
  }
  return read_labelled_files({{o.support, o.support_labels}}, reading)[0];
}

AdaptInputs read_rows(const AdaptJobOptions& o, const meta::RowScale& scale, const at::TensorOptions& tensors,
                      AdaptJobResult& result) {
  FeatureFileOptions reading;
  reading.dtype = at::kDouble;
  const LabelledFeatures known = read_new_examples(o.support, scale.schema, reading);
  const LabelledFeatures fresh = read_new_examples(o.data, scale.schema, reading);
  const LabelledFeatures named_rows = read_known_labels(o, scale.schema);
  if (named_rows.labels.numel() != known.features.rows()) {
    throw OptionError(fmt::format("{}: {} labels for {} rows; fill in the missing values in the table",
                                  named("support", o.support), named_rows.labels.numel(),
                                  known.features.rows()));
  }
  const std::vector<int64_t> values = distinct_labels(named_rows.labels, named_rows.labels_from);
  for (const int64_t value : values) {
    result.classes.push_back(named_rows.label_names.empty()
                                 ? fmt::format("{}", value)
                                 : named_rows.label_names.at(static_cast<size_t>(value)));
  }
  for (int64_t i = 0; i < fresh.features.rows(); ++i) result.rows.push_back(row_in_file(fresh.rows, i));
  const Tensor rows = at::cat({meta::dense_rows_of(known.features), meta::dense_rows_of(fresh.features)});
  return {scale.scaled(rows).to(tensors), number_labels(named_rows.labels, values, named_rows.labels_from)};
}

void check_adapt_sources(const AdaptJobOptions& o, const meta::LearnedModel& model) {
  const std::string wanted = model.rows ? "data" : "images", other = model.rows ? "images" : "data";
  if (!(model.rows ? o.images : o.data).empty()) {
    throw OptionError(fmt::format("{}: {} learned on {}; give {}", named(other), o.run,
                                  model.rows ? "a table" : "images", named(wanted)));
  }
  if ((model.rows ? o.data : o.images).empty()) {
    throw OptionError(fmt::format("{} is missing: give the examples to recognise", named(wanted)));
  }
  if (!model.rows && !o.support_labels.empty()) {
    throw OptionError(
        fmt::format("{}: folders name the classes of images; leave it out", named("support_labels")));
  }
}

// Heads that are learned on fixed features: more steps come nearer to the same solution. A whole network
// would forget what it started from.
bool learns_heads(const std::string& learner) {
  return learner == "aid" || learner == "itd" || learner == "anil";
}

AdaptJobResult predict(const AdaptJobOptions& o, meta::LearnedModel model, const at::TensorOptions& tensors) {
  check_adapt_sources(o, model);
  AdaptJobResult result;
  const auto [inputs, labels] =
      model.rows ? read_rows(o, *model.rows, tensors, result) : read_pictures(o, model, tensors, result);
  const auto ways = static_cast<int64_t>(result.classes.size());
  for (int64_t c = 0; c < ways; ++c) result.counts.push_back(labels.eq(c).sum().item<int64_t>());

  // Batch norm takes its statistics from what it sees at once: the few known examples beside the new ones
  // keep one new example from being its own mean.
  const int64_t known = labels.numel();
  meta::TaskBatch task;
  task.train_inputs = inputs.narrow(0, 0, known).unsqueeze(0);
  task.train_targets = labels.unsqueeze(0);
  task.valid_inputs = inputs.unsqueeze(0);
  task.valid_targets = at::zeros({1, inputs.size(0)}, at::kLong);
  Tensor outputs;
  if (model.raw_penalty > 0) {
    const Tensor rows = inputs.to(at::kCPU, at::kDouble).flatten(1);
    outputs = raw_input_outputs(rows.narrow(0, 0, known), labels, rows, ways, model.raw_penalty);
    result.by_raw_inputs = true;
    result.support_accuracy =
        meta::task_accuracies(outputs.narrow(0, 0, known).unsqueeze(0), task.train_targets).item<double>();
  }
  for (int64_t factor = 1; !result.by_raw_inputs && factor <= most_more_steps; factor *= 2) {
    meta::LearnedModel longer = model;
    longer.learner.inner_steps *= factor;
    longer.learner.growth *= static_cast<double>(factor);
    const Tensor tried = longer.make_learner(ways, tensors)
                             .outputs(model.x.to(tensors), task, model.iterations)[0]
                             .to(at::kCPU, at::kDouble);
    const double accuracy =
        meta::task_accuracies(tried.narrow(0, 0, known).unsqueeze(0), task.train_targets).item<double>();
    if (factor == 1 || accuracy > result.support_accuracy) {
      outputs = tried;
      result.support_accuracy = accuracy;
      result.inner_steps = longer.learner.inner_steps;
    }
    if (accuracy == 100 || !learns_heads(model.learner.name)) break;
  }
  result.probabilities = outputs.narrow(0, known, outputs.size(0) - known).softmax(1).contiguous();
  const Tensor best = result.probabilities.argmax(1);
  result.best.assign(best.data_ptr<int64_t>(), best.data_ptr<int64_t>() + best.numel());
  return result;
}

std::string predictions_csv(const AdaptJobResult& r) {
  std::string text = r.files.empty() ? "row,class,confidence" : "file,class,confidence";
  for (const std::string& name : r.classes) text += fmt::format(",{}", csv_quoted(name));
  text += "\n";
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < r.size(); ++i) {
    const auto k = static_cast<size_t>(r.best[i]);
    text +=
        fmt::format("{},{},{:.6f}", r.files.empty() ? fmt::format("{}", r.rows[i]) : csv_quoted(r.files[i]),
                    csv_quoted(r.classes[k]), row[k]);
    for (size_t c = 0; c < r.classes.size(); ++c) text += fmt::format(",{:.6f}", row[c]);
    text += "\n";
    row += r.classes.size();
  }
  return text;
}

Json predictions_json(const std::string& run, const AdaptJobResult& r) {
  Json out = {{"run", run},
              {"support_accuracy", r.support_accuracy},
              {"by", r.by_raw_inputs ? "raw_inputs" : "learned"},
              {"inner_steps", r.by_raw_inputs ? Json() : Json(r.inner_steps)},
              {"classes", Json::array()}};
  for (size_t c = 0; c < r.classes.size(); ++c) {
    out["classes"].push_back({{"name", r.classes[c]}, {r.files.empty() ? "rows" : "images", r.counts[c]}});
  }
  out["predictions"] = Json::array();
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < r.size(); ++i) {
    const auto k = static_cast<size_t>(r.best[i]);
    Json one = Json::object();
    if (r.files.empty()) {
      one["row"] = r.rows[i];
    } else {
      one["file"] = r.files[i];
    }
    one.update({{"class", r.classes[k]}, {"confidence", row[k]}});
    one["probabilities"] = std::vector<double>(row, row + r.classes.size());
    out["predictions"].push_back(one);
    row += r.classes.size();
  }
  return out;
}

}  // namespace

std::string AdaptJobResult::name_of(size_t i) const {
  return files.empty() ? fmt::format("row {}", rows[i]) : files[i];
}

AdaptJobResult run_adapt(AdaptJobOptions o, RunContext& context) {
  OptionsView(o).require_all();
  const at::TensorOptions tensors = apply(o.compute, context);
  AdaptJobResult result = predict(o, load_learned(o.run), tensors);
  if (result.support_accuracy < 100) {
    context.warning(
        fmt::format("{:.0f} % of the known {} are classified correctly after adaptation: some may be "
                    "mislabelled, or what was learned in {} does not tell these classes apart",
                    result.support_accuracy, result.files.empty() ? "rows" : "images", o.run));
  }
  if (!o.out.empty()) write_file(o.out, predictions_csv(result));
  result.out = o.out;
  result.json = predictions_json(o.run, result);
  return result;
}

}  // namespace bilevel
