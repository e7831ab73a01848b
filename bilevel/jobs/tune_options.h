#pragma once
// The options of tuning: which examples, by which of its two ways, and how.

#include <cstdint>
#include <string>

#include "bilevel/fields/fields.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/automatic.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/table_choice.h"
#include "bilevel/problems/regularizer_sets.h"

namespace bilevel {

// By the loss of rows that were held out, for tables (tables/tune_table.h), or by an algorithm on
// problems/regularizer_search.h.
const TableWays& tune_ways();

struct TuneJobOptions {
  TuneJobOptions();
  RegularizerFileOptions files = {};
  std::string data = {};      // newsgroups in place of files
  std::string data_dir = {};  // of that
  std::string weights = "unit";
  int64_t top = 20;
  TableChoice table = {};
  std::string loss = "cross-entropy";  // of tables: or squared, for targets that are numbers
  std::string groups = {};             // of tables: a file of names, or prefix (tune_groups.h)
  bool per_class = false;              // of tables
  AlgorithmChoice algorithm = {};
  AutomaticOptions automatic = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<TuneJobOptions>& fields();
};

// Throws OptionError for files that are missing or too many.
void check_tune_sources(TuneJobOptions& options);
// For examples in memory: throws OptionError where a field of files or of named sets was given.
void refuse_tune_sources(TuneJobOptions& options);
// Whether the way of tables is meant, as far as the options tell. Throws OptionError for an option that would
// be ignored.
bool wants_table(TuneJobOptions& options, bool has_valid);

// stocBiO's settings on 20 Newsgroups; elsewhere the inner rate comes from the curvature and the outer rate,
// 0 until then, from the first hypergradient.
void set_tune_defaults(TuneJobOptions& options);

// In the precision of `compute`: the files as they are, and 20 Newsgroups.
TableSets read_tune_tables(const TuneJobOptions& options, bool by_table = false);
RegularizerSets read_tune_newsgroups(const TuneJobOptions& options);

}  // namespace bilevel
