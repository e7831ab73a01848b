#pragma once
// The job `predict`: the model of a finished run used on new data, in the classes' own names.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct PredictJobOptions {
  PredictJobOptions();
  std::string run = {};             // folder of a run of clean, tune, interact, learn or train
  std::string data = {};            // a file of examples, or a folder of pictures
  std::string output = {};          // CSV file; empty = none
  std::string support = {};         // of a run of learn: a folder of class folders, a few pictures in each
  FeatureFileOptions reading = {};  // how a table is written; its columns follow the model
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<PredictJobOptions>& fields();
};

struct PredictJobResult {
  std::string job = {};                   // that made the model
  std::vector<std::string> classes = {};  // empty: numbers are predicted
  std::vector<std::string> files = {};    // of pictures, one per row; empty: rows of a file
  std::vector<int64_t> rows = {};         // of the file, from 0
  std::vector<std::string> tasks = {};    // of interact: the task of every row
  Tensor probabilities = {};              // rows x classes, double; or rows x 1, the numbers
  std::vector<int64_t> best = {};         // the class of every row
  double accuracy = -1;                   // in percent, where the data hold labels; or the mean squared error
  int64_t unknown_labels = 0;             // rows whose label the model does not know: not in the accuracy
  std::string output = {};                // the file that was written
  Json json = {};

  size_t size() const { return files.empty() ? rows.size() : files.size(); }
  bool predicts_numbers() const { return classes.empty(); }
};

// Throws OptionError for a run without a model, std::runtime_error for data that do not fit it, naming the
// column or the file.
PredictJobResult run_predict(PredictJobOptions options, RunContext& context);

}  // namespace bilevel
