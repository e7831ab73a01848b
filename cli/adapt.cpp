// `bilevel adapt`: what `bilevel learn` learned, used on a person's own few images or rows.

#include "bilevel/jobs/adapt.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

void print_adapt(const AdaptJobResult& r) {
  fmt::print("{} classes, {} {} to learn from ({:.1f} % of them recognised afterwards)\n\n", r.classes.size(),
             std::accumulate(r.counts.begin(), r.counts.end(), int64_t{0}),
             r.files.empty() ? "rows" : "images", r.support_accuracy);
  size_t width = 4;
  for (size_t i = 0; i < r.size(); ++i) width = std::max(width, r.name_of(i).size());
  fmt::print("{:<{}}  {:>10}  class\n", r.files.empty() ? "row" : "file", width, "confidence");
  const double* row = r.probabilities.data_ptr<double>();
  for (size_t i = 0; i < r.size(); ++i) {
    const auto k = static_cast<size_t>(r.best[i]);
    fmt::print("{:<{}}  {:>8.1f} %  {}\n", r.name_of(i), width, 100 * row[k], r.classes[k]);
    row += r.classes.size();
  }
  if (!r.out.empty()) fmt::print("\nwritten to {}\n", r.out);
}

}  // namespace

void add_adapt_command(CLI::App& app, int& exit_code) {
  add_question<AdaptJobOptions>(
      app, exit_code,
      {"adapt", "Recognise your own images or rows from a few examples of each class, with a learned model",
       "The support folder has a folder of PNG or JPEG files for each class; the images to recognise are "
       "such\n"
       "files in a folder. For a run on a table, both are tables with its columns, the first with labels.\n"
       "Examples:\n"
       "  bilevel adapt --run runs/learn-20260101-120000-0 --support my-letters/ --images new/ --out "
       "predictions.csv\n"
       "  bilevel adapt --run runs/learn-20260101-120000-0 --support few.csv --data new.csv"},
      run_adapt, print_adapt);
}

}  // namespace bilevel::cli
