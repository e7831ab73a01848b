#pragma once
// The options of cleaning: which examples, by which of its two ways, and how.

#include <cstdint>
#include <string>

#include "bilevel/clean/clean.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/automatic.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/table_choice.h"
#include "bilevel/problems/cleaning_sets.h"

namespace bilevel {

// By a model of how labels go wrong, for tables (tables/clean_table.h), or by weights that an algorithm
// learns on a clean validation set (clean/clean.h).
const TableWays& clean_ways();

struct CleanJobOptions {
  CleanJobOptions();
  CleaningFileOptions files = {};
  std::string data = {};            // a set known by name in place of files, with noise drawn on its labels
  NamedCleaningOptions named = {};  // its options
  std::string model = "linear";
  double regularization = 0.001;  // K-RMD's
  bool no_bias = false;
  double threshold = CleanOptions{}.threshold;
  int64_t most_suspects = 0;  // 0 = no limit
  int64_t final_steps = CleanOptions{}.final_steps;
  TableChoice table = {};
  AlgorithmChoice algorithm = {};
  AutomaticOptions automatic = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<CleanJobOptions>& fields();

  bool has_bias() const { return !no_bias && model == "linear"; }
};

// Whether the options ask for the way of tables (noise-model); pictures are detected when they are read.
// Throws OptionError for an option that would be ignored.
bool wants_table(CleanJobOptions& options);
// Whether only the way of tables fits the options.
bool insists_on_table(const CleanJobOptions& options, bool has_valid);
// Throws OptionError for files that are missing or too many, in the way that was chosen.
void check_clean_sources(CleanJobOptions& options, bool by_table);
// For examples in memory: throws OptionError where a field of files or of named sets was given.
void refuse_clean_sources(CleanJobOptions& options);

// From the files or the named set, in the precision of `compute`. A column of ones is only in a named set.
CleaningSets read_clean_data(const CleanJobOptions& options, bool by_table = false);

}  // namespace bilevel
