#pragma once
// clean, tune and interact have two ways: the one made for tables, which solves its inner problems to a
// tolerance and needs no rates, and an algorithm, as the papers have it. Which one a set of options means,
// and how the first one is asked to stop.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/feature_files.h"
#include "bilevel/fields/fields.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"
#include "bilevel/tables/fit_counts.h"
#include "bilevel/tables/table_hooks.h"

namespace bilevel {

// Rows for a file of examples and one of their labels: "train" and "train_labels".
Fields<LabelledFile> labelled_file_fields(const std::string& heading, const std::string& name,
                                          const std::string& help, const std::string& labels_help);
// How tables are written and which of their columns count: rows for the options of every job that reads them.
// They stand under `heading`.
Fields<FeatureFileOptions> table_file_fields(const std::string& heading);
// Those of them that say how a file is written and what it lacks.
Fields<FeatureFileOptions> dialect_fields(const std::string& heading);

// Sentences about what was recognised in a file go to the context's listener.
inline void tell_notes(FeatureFileOptions& reading, const RunContext& context) {
  reading.note = [&context](const std::string& note) { context.line(note); };
}

// What the two ways are called; fields of one alone are .of() it.
struct TableWays {
  std::string table, algorithm;  // "noise-model", "weights"
};

struct TableChoice {
  std::string by = "auto";
  int64_t folds = 5;
  bool no_standardize = false;
  static Fields<TableChoice> fields(const TableWays& ways);
};

// Whether the way made for tables is meant: asked for, or, where it is possible, nothing says the other.
// Throws OptionError for an option that the way would ignore. `options` holds the fields of a TableChoice and
// of an algorithm.
bool means_table(const OptionsView& options, const TableWays& ways, bool possible);

// A run from before there was a choice keeps the other way.
void keep_earlier_way(OptionsView options, const RunContext& context, const TableWays& ways);

// Whether the dense form of every set, and its scores, are small enough to be held in memory.
bool is_small_enough(const std::vector<const Features*>& sets, int64_t classes);

// Throws OptionError where a fold would be empty, or the copies of all folds would not fit.
void refuse_folds(int64_t folds, const Features& train);

[[noreturn]] void refuse_folds_beside_valid(int64_t folds);

// Such a job takes seconds and keeps no state: resuming it repeats it.
struct TableInterrupted {};
// Hooks that tell the progress, and throw TableInterrupted where the context was interrupted.
TableHooks table_hooks(const RunContext& context, const std::string& job);

// The run's last word after that, with its summary in `json`.
JobEnd end_of_interrupted_table(RunContext& context, Json& json);

// The precision that examples are read in: a table's is double unless another was given. Of a time
// in milliseconds a float keeps two minutes.
at::ScalarType reading_dtype(const ComputeOptions& compute, bool is_given, bool by_table);
// For an algorithm, where a table turned out to be none for the other way.
void set_dtype(Features& features, const ComputeOptions& compute);

// Fits that ended before their tolerance make what was chosen by them less sure.
void warn_of_unconverged(const FitCounts& counts, const RunContext& context);

}  // namespace bilevel
