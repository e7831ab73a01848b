// `bilevel predict`: the model of a finished run used on new data.

#include "bilevel/jobs/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

constexpr size_t most_shown = 20;

void print_predict(const PredictJobResult& r) {
  const auto name = [&](size_t i) { return r.files.empty() ? fmt::format("{}", r.rows[i]) : r.files[i]; };
  const size_t shown = std::min(r.size(), most_shown);
  size_t width = 4;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, name(i).size());
  fmt::print("{:<{}}  {}\n", r.files.empty() ? "row" : "file", width,
             r.predicts_numbers() ? "     value" : "confidence  class");
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < shown; ++i) {
    if (r.predicts_numbers()) {
      fmt::print("{:<{}}  {:>10.5g}\n", name(i), width, row[i]);
      continue;
    }
    const auto k = static_cast<size_t>(r.best[i]);
    fmt::print("{:<{}}  {:>8.1f} %  {}\n", name(i), width, 100 * row[i * r.classes.size() + k], r.classes[k]);
  }
  if (shown < r.size()) fmt::print("... {} in all\n", r.size());
  if (r.accuracy >= 0) {
    fmt::print("\nThe data hold labels: {}\n", r.predicts_numbers()
                                                   ? fmt::format("mean squared error {:.5g}", r.accuracy)
                                                   : fmt::format("{:.2f} % are predicted", r.accuracy));
  }
  if (r.unknown_labels > 0) {
    fmt::print("{} of {} rows have a label that the model does not know{}\n", r.unknown_labels, r.size(),
               r.accuracy >= 0 ? ", and do not count" : "");
  }
  if (!r.output.empty()) fmt::print("\nwritten to {}\n", r.output);
}

}  // namespace

void add_predict_command(CLI::App& app, int& exit_code) {
  add_question<PredictJobOptions>(
      app, exit_code,
      {"predict", "Use the model of a finished run on new data",
       "Columns are matched by name, and prepared as the training file's were; pictures are resized and "
       "scaled\n"
       "as in training. A label column may be missing; if it is present, the accuracy is shown.\n"
       "Examples:\n"
       "  bilevel predict --run tuned --data new.csv --output predictions.csv\n"
       "  bilevel predict --run trained --data photos/ --output predictions.csv\n"
       "  bilevel predict --run trained/model.onnx --data photos/\n"
       "  bilevel predict --run runs/learn-20260101-120000-0 --support my-letters/ --data new/ --json"},
      run_predict, print_predict);
}

}  // namespace bilevel::cli
