#include "bilevel/jobs/table_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/automatic.h"
#include "bilevel/tables/scaled_table.h"

namespace bilevel {

Fields<LabelledFile> labelled_file_fields(const std::string& heading, const std::string& name,
                                          const std::string& help, const std::string& labels_help) {
  Fields<LabelledFile> f;
  f.heading(heading);
  f.add(
       name, [](auto& o) -> auto& { return o.features; }, help)
      .is(FieldKind::place)
      .first();
  f.add(
       name + "_labels", [](auto& o) -> auto& { return o.labels; }, labels_help)
      .is(FieldKind::place)
      .first();
  return f;
}

Fields<FeatureFileOptions> table_file_fields(const std::string& heading) {
  using O = FeatureFileOptions;
  Fields<O> f;
  f.heading(heading);
  f.add(
       "drop", [](O & o) -> auto& { return o.drop; },
       "columns of a table to leave out, by name or position; ids are left out automatically")
      .first();
  f.add(
      "keep", [](O & o) -> auto& { return o.keep; }, "columns to keep although they look like ids");
  f.include(
      [](O & o) -> auto& { return o; }, dialect_fields(heading));
  return f;
}

Fields<FeatureFileOptions> dialect_fields(const std::string& heading) {
  using O = FeatureFileOptions;
  Fields<O> f;
  f.heading(heading);
  f.add(
       "missing", [](O & o) -> auto& { return o.missing; },
       "missing values in a table: error, mean (of the training rows) or drop (their rows)")
      .one_of({"error", "mean", "drop"})
      .first();
  f.add(
       "separator", [](O & o) -> auto& { return o.separator; }, "separator between the fields of a table")
      .one_of({"auto", "comma", "semicolon", "tab"});
  f.add(
       "decimal", [](O & o) -> auto& { return o.decimal; }, "decimal mark of the numbers")
      .one_of({"auto", "point", "comma"});
  f.add(
       "header", [](O & o) -> auto& { return o.header; }, "whether a table's first row names its columns")
      .one_of({"auto", "yes", "no"});
  return f;
}

Fields<TableChoice> TableChoice::fields(const TableWays& ways) {
  using O = TableChoice;
  Fields<O> f;
  f.heading("tables");
  f.add(
       "by", [](O & o) -> auto& { return o.by; },
       fmt::format("approach: {} (tables, unless an algorithm's option is given), {}, or auto", ways.table,
                   ways.algorithm))
      .one_of({"auto", ways.table, ways.algorithm})
      .first();
  f.add(
       "folds", [](O & o) -> auto& { return o.folds; },
       fmt::format("{}: number of parts in which rows are held out", named("by", ways.table)))
      .in(at_least(2, bounds::within_step))
      .of(ways.table);
  f.add(
       "no_standardize", [](O & o) -> auto& { return o.no_standardize; },
       fmt::format("{}: keep the columns' scales as they are", named("by", ways.table)))
      .of(ways.table);
  return f;
}

namespace {

// Options of algorithms first, then those that the job has for the same way.
std::vector<std::string> given_of_algorithm(const OptionsView& options, const TableWays& ways) {
  std::vector<std::string> given;
  const auto look = [&](const Field& field) {
    if (options.is_given(field)) given.push_back(named(field.name));
  };
  const auto look_for = [&](const Field& row) {  // not every job has all of them
    if (const Field* field = options.find(row.name)) look(*field);
  };
  for (const Field& field : AlgorithmChoice::fields().rows()) look_for(field);
  for (const Field& field : AutomaticOptions::fields().rows()) look_for(field);
  for (const Field& field : options.fields()) {
    if (field.owner == ways.algorithm) look(field);
  }
  return given;
}

}  // namespace

bool means_table(const OptionsView& options, const TableWays& ways, bool possible) {
  const std::vector<std::string> given = given_of_algorithm(options, ways);
  const std::string by = options.words(options.at("by")).front();
  if (by == ways.table) {
    if (given.empty()) return true;
    throw OptionError(fmt::format("{} does not use {}: leave it out, or use {}", named("by", ways.table),
                                  fmt::join(given, ", "), named("by", ways.algorithm)));
  }
  if (by == "auto" && possible && given.empty()) return true;
  for (const Field& field : options.fields()) {
    if (field.owner != ways.table || !options.is_given(field)) continue;
    throw OptionError(fmt::format(
        "{} needs {}, but {} {}: leave one of them out", named(field.name), named("by", ways.table),
        given.empty() ? "the other options need"
                      : fmt::format("{} {}", fmt::join(given, ", "), given.size() > 1 ? "need" : "needs"),
        named("by", ways.algorithm)));
  }
  return false;
}

void keep_earlier_way(OptionsView options, const RunContext& context, const TableWays& ways) {
  if (!context.resumes()) return;
  const NamedWords effective = read_stored_run(context.place().resume).effective;
  const bool says = std::any_of(effective.begin(), effective.end(),
                                [](const auto& option) { return option.first == "by"; });
  if (!says) options.give(options.at("by"), {ways.algorithm});
}

bool is_small_enough(const std::vector<const Features*>& sets, int64_t classes) {
  return std::all_of(sets.begin(), sets.end(), [&](const Features* set) {
    const int64_t rows = set->rows();
    return rows <= largest_table / std::max<int64_t>(set->columns(), 1) &&
           rows <= largest_table / std::max<int64_t>(classes, 1);
  });
}

void refuse_folds(int64_t folds, const Features& train) {
  const int64_t rows = train.rows();
  const std::string said = named("folds", word_of(folds));
  if (folds > rows) {
    throw OptionError(fmt::format("{}: must be at most {}, the rows of {}; give fewer folds or more rows",
                                  said, rows, named("train")));
  }
  const int64_t numbers = std::max<int64_t>(rows * train.columns(), 1);
  const int64_t most = std::max(TableChoice{}.folds, TableChoice{}.folds * largest_table / numbers);
  if (folds > most) {
    throw OptionError(fmt::format(
        "{}: every fold keeps a copy of the table; a table of this size allows at most {}", said, most));
  }
}

void refuse_folds_beside_valid(int64_t folds) {
  throw OptionError(fmt::format(
      "{} with {}: rows are held out in folds only if there is no validation file; leave one of them out",
      named("folds", word_of(folds)), named("valid")));
}

TableHooks table_hooks(const RunContext& context, const std::string& job) {
  return {.progress = [&context, job](const std::string& what) { context.progress(job + ": " + what); },
          .between_fits =
              [&context] {
                if (context.interrupted()) throw TableInterrupted();
              }};
}

JobEnd end_of_interrupted_table(RunContext& context, Json& json) {
  json = Json::object();
  if (context.has_folder()) json["folder"] = context.folder_name();
  json["stopped"] = "interrupted";
  context.end(RunStatus::interrupted, "", json);
  return {.status = RunStatus::interrupted};
}

at::ScalarType reading_dtype(const ComputeOptions& compute, bool is_given, bool by_table) {
  return compute.dtype == "float" && (is_given || !by_table) ? at::kFloat : at::kDouble;
}

void set_dtype(Features& features, const ComputeOptions& compute) {
  const at::ScalarType dtype = compute.dtype == "float" ? at::kFloat : at::kDouble;
  if (features.dense.defined()) {
    features.dense = features.dense.to(dtype);
  } else if (features.sparse.value.defined()) {
    features.sparse = to_dtype(features.sparse, dtype);
  }
}

void warn_of_unconverged(const FitCounts& counts, const RunContext& context) {
  if (counts.unsolved > 0) {
    context.warning(fmt::format(
        "{} linear systems of implicit gradients ended before their tolerance, so that the search had less "
        "exact directions; are the columns of very different scales? Leave out {} if it was given",
        counts.unsolved, named("no_standardize")));
  }
  if (counts.unconverged == 0) return;
  context.warning(fmt::format(
      "{} of {} fits ended before their tolerance, so that penalties and losses are less exact; are the "
      "columns of very different scales? Leave out {} if it was given",
      counts.unconverged, counts.fits, named("no_standardize")));
}

}  // namespace bilevel
