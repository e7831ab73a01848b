#include "bilevel/jobs/export.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/export_model.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

const Fields<ExportJobOptions>& ExportJobOptions::fields() {
  static const Fields<ExportJobOptions> table = [] {
    using O = ExportJobOptions;
    Fields<O> f;
    f.add(
         "run", [](O & o) -> auto& { return o.run; },
         "folder of a finished run of clean, tune, interact, learn or train")
        .required()
        .first();
    f.add(
         "format", [](O & o) -> auto& { return o.format; },
         "npz: only the arrays, for NumPy; torchscript: for torch.jit.load; onnx: for ONNX Runtime and "
         "others")
        .one_of(export_formats())
        .required()
        .first();
    f.add(
         "output", [](O & o) -> auto& { return o.output; },
         "file to write; model.npz, model.pt or model.onnx in the run's folder by default")
        .is(FieldKind::place)
        .first();
    return f;
  }();
  return table;
}

namespace {

// The model of learn is a file of its own kind.
bool is_learned(const std::string& run) {
  return !std::filesystem::exists(run + "/model.json") && std::filesystem::exists(run + "/model");
}

}  // namespace

ExportJobResult run_export(ExportJobOptions o, RunContext& context) {
  OptionsView(o).require_all();
  if (o.format == "onnx" && !has_onnx()) {
    throw OptionError(
        fmt::format("{}: this build of bilevel has no ONNX; install libonnx-dev and build again, or use "
                    "torchscript or npz",
                    named("format", o.format)));
  }
  ExportJobResult result{.format = o.format, .output = o.output};
  ExportedModel model;
  if (is_learned(o.run)) {
    result.job = "learn";
    const meta::LearnedModel learned = meta::load_model(o.run + "/model");
    if (learned.raw_penalty > 0 && o.format != "npz") {
      throw OptionError(
          fmt::format("{}: the run returned logistic regression on raw inputs, which is fitted to each task: "
                      "there is no network to write; use npz, which adapt reads",
                      named("format", o.format)));
    }
    model = exported_learned(learned);
  } else {
    const SavedModel saved = read_saved_model(o.run);
    result.job = saved.job;
    model = exported_model(o.run, saved);
  }
  if (result.output.empty()) result.output = fmt::format("{}/model{}", o.run, ending_of_format(o.format));
  context.progress(fmt::format("export: {}", result.output));
  write_exported(result.output, o.format, model);
  for (const NamedArray& array : model.arrays) result.numbers += array.value.numel();
  result.arrays = static_cast<int64_t>(model.arrays.size());
  for (const ExportedInput& input : model.inputs) {
    result.inputs.push_back({input.name, exported_type(input.type), input.holds, input.shape});
  }
  result.model_output = {model.output.name, model.output.holds, model.output.width};
  result.description = model.description;
  result.json = {{"run", o.run},
                 {"job", result.job},
                 {"format", o.format},
                 {"output", result.output},
                 {"arrays", result.arrays},
                 {"numbers", result.numbers},
                 {"description", result.description}};
  return result;
}

}  // namespace bilevel
