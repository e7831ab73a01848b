#include "bilevel/jobs/predict.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "bilevel/data/csv_line.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/export_model.h"
#include "bilevel/jobs/predict_run.h"
#include "bilevel/jobs/table_choice.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

PredictJobOptions::PredictJobOptions() { compute.dtype = "float"; }

const Fields<PredictJobOptions>& PredictJobOptions::fields() {
  static const Fields<PredictJobOptions> table = [] {
    using O = PredictJobOptions;
    Fields<O> f;
    f.add(
         "run", [](O & o) -> auto& { return o.run; },
         "folder of a finished run of clean, tune, interact, learn or train, or a file exported from it")
        .required()
        .first();
    f.add(
         "data", [](O & o) -> auto& { return o.data; },
         "new examples: a table, NPY, IDX or svmlight file like the training file; for models of pictures, a "
         "folder of PNG or JPEG files or one such file")
        .is(FieldKind::place)
        .required()
        .first();
    f.add(
         "output", [](O & o) -> auto& { return o.output; },
         "CSV file to write: row or file, predicted class, its probability, and that of every class")
        .is(FieldKind::place)
        .first();
    f.add(
         "support", [](O & o) -> auto& { return o.support; },
         "for a run of learn: folder of class folders with a few PNG or JPEG files in each")
        .is(FieldKind::place)
        .first();
    f.include(
        [](O & o) -> auto& { return o.reading; }, dialect_fields("format of a table"));
    f.row("missing").by_rule().help =
        "missing values of the new table: error, mean (of the training rows) or drop; default: as in the run";
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

std::string predictions_table(const PredictJobResult& r) {
  std::string text = r.files.empty() ? "row" : "file";
  if (!r.tasks.empty()) text += ",task";
  text += r.predicts_numbers() ? ",value" : ",class,confidence";
  for (const std::string& name : r.classes) text += fmt::format(",{}", csv_quoted(name));
  text += "\n";
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < r.size(); ++i) {
    text += r.files.empty() ? fmt::format("{}", r.rows[i]) : csv_quoted(r.files[i]);
    if (!r.tasks.empty()) text += fmt::format(",{}", csv_quoted(r.tasks[i]));
    if (r.predicts_numbers()) {
      text += fmt::format(",{:.9g}\n", *row++);
      continue;
    }
    const auto k = static_cast<size_t>(r.best[i]);
    text += fmt::format(",{},{:.6f}", csv_quoted(r.classes[k]), row[k]);
    for (size_t c = 0; c < r.classes.size(); ++c) text += fmt::format(",{:.6f}", row[c]);
    text += "\n";
    row += r.classes.size();
  }
  return text;
}

namespace {

Json predictions_to_json(const PredictJobOptions& o, const PredictJobResult& r) {
  Json out = {{"run", o.run}, {"job", r.job}, {"data", o.data}};
  if (!r.predicts_numbers()) out["classes"] = r.classes;
  if (r.accuracy >= 0) out[r.predicts_numbers() ? "mean_squared_error" : "accuracy"] = r.accuracy;
  if (r.unknown_labels > 0) out["unknown_labels"] = r.unknown_labels;
  if (!r.output.empty()) out["output"] = r.output;
  out["predictions"] = Json::array();
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < r.size(); ++i) {
    Json one = r.files.empty() ? Json{{"row", r.rows[i]}} : Json{{"file", r.files[i]}};
    if (!r.tasks.empty()) one["task"] = r.tasks[i];
    if (r.predicts_numbers()) {
      one["value"] = number(*row++);
    } else {
      const auto k = static_cast<size_t>(r.best[i]);
      one["class"] = r.classes[k];
      one["confidence"] = number(row[k]);
      one["probabilities"] = std::vector<double>(row, row + r.classes.size());
      row += r.classes.size();
    }
    out["predictions"].push_back(std::move(one));
  }
  return out;
}

void refuse_support(const PredictJobOptions& o, const std::string& job) {
  if (o.support.empty()) return;
  throw OptionError(fmt::format("{}: the model of {} already has its classes; leave it out",
                                named("support", o.support), job));
}

}  // namespace

PredictJobResult run_predict(PredictJobOptions o, RunContext& context) {
  OptionsView(o).require_all();
  const at::TensorOptions tensors = apply(o.compute, context);
  tell_notes(o.reading, context);
  if (std::error_code none; !o.output.empty() && std::filesystem::equivalent(o.output, o.data, none)) {
    throw OptionError(
        fmt::format("{}: these are the examples themselves, which predictions would replace; "
                    "name another file",
                    named("output", o.output)));
  }
  PredictJobResult result;
  ModelInUse model;
  model.is_file = is_exported_file(o.run);
  if (model.is_file) model.file = read_exported(o.run);
  // The model of learn is a file of its own kind.
  const bool learned = model.is_file ? model.file.description.contains("learned")
                                     : !std::filesystem::exists(o.run + "/model.json") &&
                                           std::filesystem::exists(o.run + "/model");
  if (learned) {
    predict_few_shot(o, context, result);
  } else {
    model.saved = model.is_file ? saved_model_of(model.file.description.value("model", Json()), o.run)
                                : read_saved_model(o.run);
    refuse_support(o, model.saved.job);
    result.job = model.saved.job;
    result.classes = model.saved.class_names;
    if (model.saved.kind == SavedModel::Kind::network) {
      predict_pictures(o, model, tensors, context, result);
    } else {
      predict_table(o, model, result);
    }
  }
  result.probabilities = result.probabilities.to(at::kCPU, at::kDouble).contiguous();
  if (!result.predicts_numbers()) {
    const Tensor best = result.probabilities.argmax(1);
    result.best.assign(best.data_ptr<int64_t>(), best.data_ptr<int64_t>() + best.numel());
  }
  if (!o.output.empty()) {
    write_file(o.output, predictions_table(result));
    result.output = o.output;
  }
  result.json = predictions_to_json(o, result);
  return result;
}

}  // namespace bilevel
