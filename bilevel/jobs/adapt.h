#pragma once
// The job `adapt`: what `learn` learned, applied to a few of your own images or rows of a table.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct AdaptJobOptions {
  AdaptJobOptions();
  std::string run = {};             // folder of a run of learn, on images or on a table
  std::string support = {};         // folder of class folders, or a table with labels
  std::string support_labels = {};  // of a table without them
  std::string images = {};          // folder of what is to be recognised
  std::string data = {};            // or a table of it
  std::string out = {};             // CSV file; empty = none
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<AdaptJobOptions>& fields();
};

struct AdaptJobResult {
  std::vector<std::string> files = {};  // of images
  std::vector<int64_t> rows = {};       // of a table: which rows of the file
  std::vector<std::string> classes = {};
  Tensor probabilities = {};         // files or rows x classes; double, CPU
  std::vector<int64_t> best = {};    // the class of each of them
  std::vector<int64_t> counts = {};  // known examples of each class
  double support_accuracy = 0;       // accuracy on the known examples after adaptation
  // Steps taken: more than in training if those did not recognise all of the known images.
  int64_t inner_steps = 0;
  bool by_raw_inputs = false;  // the run returned logistic regression on them in place of what it learned
  std::string out = {};        // the file that was written
  Json json = {};

  size_t size() const { return best.size(); }
  // "new/a.png", or "row 3".
  std::string name_of(size_t i) const;
};
// Throws OptionError for folders without the expected contents.
AdaptJobResult run_adapt(AdaptJobOptions options, RunContext& context);

}  // namespace bilevel
