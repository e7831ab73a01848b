#pragma once
// The job `export`: the model of a finished run as a file that other programs read.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct ExportJobOptions {
  std::string run = {};     // folder of a run of clean, tune, interact, learn or train
  std::string format = {};  // npz, torchscript or onnx
  std::string output = {};  // the file; empty = model.npz, model.pt or model.onnx in the run's folder
  Given given = {};
  static const Fields<ExportJobOptions>& fields();
};

struct ExportJobResult {
  // What the model takes and gives, as the file describes it. The examples are the first dimension of both.
  struct Input {
    std::string name, type, holds;  // "images", "float32", a sentence
    std::vector<int64_t> shape;     // of one example
  };
  struct Output {
    std::string name, holds;
    int64_t width = 0;  // numbers for each example
  };
  std::string job = {};  // that made the model
  std::string format = {}, output = {};
  int64_t arrays = 0, numbers = 0;  // how many there are, and how many numbers they hold
  std::vector<Input> inputs = {};
  Output model_output = {};
  Json description = {};  // as it stands in the file
  Json json = {};
};

// Throws OptionError for a run without a model and for a format that this build does not have.
ExportJobResult run_export(ExportJobOptions options, RunContext& context);

}  // namespace bilevel
