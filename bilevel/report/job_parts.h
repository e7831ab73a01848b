#pragma once
// What each job adds to its page: one sentence, numbers that people ask for first, and sections.

#include <optional>
#include <string>
#include <vector>

#include "bilevel/report/report.h"
#include "bilevel/run/json.h"

namespace bilevel {

JobReport search_report(const RunData& run);
JobReport train_report(const RunData& run);
JobReport clean_report(const RunData& run);
JobReport interact_report(const RunData& run);
JobReport tune_report(const RunData& run);
// For every other command; the commands above begin with it.
JobReport plain_report(const RunData& run);

// What a run ended with, the most important first: a study takes means of these.
std::vector<FinalNumber> final_numbers(const RunData& run);

// ---- parts that they share ----

// A member of a run's file, whatever the file holds: nothing where it is missing or of another kind.
std::optional<double> number_in(const Json& object, const std::string& name);
std::string text_in(const Json& object, const std::string& name);
// Of the record that gave the answer where the summary names its epoch, else of the last.
std::optional<double> value_of_chosen(const RunData& run, const std::string& name);
// Whether a column of a benchmark's table is an accuracy in percent.
bool is_accuracy_of_table(const std::string& column);
// The last part of a path, for a heading: digits of data/digits and of data/digits/ alike.
std::string name_of_path(const std::string& path);

// A table of the models that a summary compares; empty where it has none of their numbers.
struct ComparedModel {
  std::string title, prefix;  // "one model for all", "pooled_"
};
std::string models_html(const RunData& run, const std::vector<ComparedModel>& models);

// The cells of a genotype as a picture, or a note that says why there is none.
std::string cells_html(const std::string& space, const std::string& genotype);
// "What was learned": values as bars where they are few, as a histogram where they are many. `marked`, where
// it is not empty, tells which of them stand on top in another colour.
struct ValuesPicture {
  std::vector<double> values;
  std::vector<bool> marked = {};
  std::string label;  // of the values
  std::string title;
  std::string unmarked_name = {}, marked_name = {};  // of the legend
};
std::string values_html(const ValuesPicture& picture);
std::string heat_scale_html(double low, double high);  // the legend of a heat map

}  // namespace bilevel
