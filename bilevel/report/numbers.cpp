// The numbers that a run ended with, of which `bilevel report` takes means over seeds.

#include <array>
#include <string>
#include <utility>

#include "bilevel/report/curves.h"
#include "bilevel/report/job_parts.h"

namespace bilevel {
namespace {

struct Known {
  const char* name;
  const char* title;  // nullptr = as the curves call it
};
// What the summaries of the jobs have, and their last records where a summary does not repeat them; the most
// important first.
constexpr std::array<Known, 17> known_numbers{{{"test_accuracy", nullptr},
                                               {"baseline_test_accuracy", "test accuracy, baseline"},
                                               {"independent_test_accuracy", "test accuracy, independent"},
                                               {"pooled_test_accuracy", "test accuracy, pooled"},
                                               {"valid_accuracy", nullptr},
                                               {"baseline_valid_accuracy", "validation accuracy, baseline"},
                                               {"test_loss", nullptr},
                                               {"valid_loss", nullptr},
                                               {"skips", nullptr},
                                               {"outer_loss", nullptr},
                                               {"inner_loss", nullptr},
                                               {"direction_norm", nullptr},
                                               {"error_bound", nullptr},
                                               {"f1", "F1"},
                                               {"precision", nullptr},
                                               {"recall", nullptr},
                                               {"flagged", "suspects"}}};

}  // namespace

bool is_accuracy_of_table(const std::string& column) {
  return column.ends_with("_test") || column.ends_with("_valid") || column.ends_with("_acc");
}

std::vector<FinalNumber> final_numbers(const RunData& run) {
  std::vector<FinalNumber> numbers;
  const bool search = run.facts.command == "search";
  if (const auto table = run.summary.find("benchmark"); table != run.summary.end() && table->is_object()) {
    for (const auto& [column, value] : table->items()) {
      if (!value.is_number() || !is_accuracy_of_table(column)) continue;
      numbers.push_back({column, title_of(column), value.get<double>(), /*percent=*/true, false});
    }
  }
  for (const Known& one : known_numbers) {
    auto value = number_in(run.summary, one.name);
    if (!value) value = value_of_chosen(run, one.name);
    // How far a solve has come; a search is judged by its cell.
    if (!value || (search && std::string(one.name) == "direction_norm")) continue;
    std::string title = one.title != nullptr ? one.title : title_of(one.name);
    // A supernet's accuracy is not the cell's.
    if (search && std::string(one.name).starts_with("valid") && run.effective("method") != "random") {
      title = "supernet's " + title;
    }
    numbers.push_back({one.name, title, *value, is_percent(one.name), false});
  }
  for (const auto& [name, title] :
       {std::pair{"parameters", "parameters, M"}, std::pair{"multiply_adds", "multiply-adds, M"}}) {
    if (const auto value = number_in(run.summary, name)) {
      numbers.push_back({std::string(name) + "_m", title, *value / 1e6, false, false});
    }
  }
  if (!run.metrics.lines.empty()) {
    if (const auto calls = oracle_calls(run.metrics.lines.back())) {
      numbers.push_back({"oracle_calls", "oracle calls", *calls, false, false});
    }
  }
  if (const auto seconds = number_in(run.summary, "seconds")) {
    numbers.push_back({"seconds", "time", *seconds, false, /*seconds=*/true});
  }
  return numbers;
}

}  // namespace bilevel
