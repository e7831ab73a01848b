#pragma once
// The two ways of the job `clean`, and the files that both write.

#include <string>
#include <vector>

#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/job_clock.h"
#include "bilevel/jobs/saved_model.h"

namespace bilevel {

// `result` has its sets, without a column of ones, and the data's name; the rest is filled in.
void clean_by_noise_model(CleanJobOptions& options, RunContext& context, const JobClock& clock,
                          CleanJobResult& result);
// With such a column where the options ask for it.
void clean_by_weights(CleanJobOptions& options, RunContext& context, const JobClock& clock,
                      CleanJobResult& result);

// Class k as the files have it: a name or a number.
inline Json label_json(const CleaningSets& sets, int64_t k) {
  const auto at = static_cast<size_t>(k);
  return sets.has_names ? Json(sets.class_names[at]) : Json(sets.label_values[at]);
}
// The same as a field of a table.
std::string label_field(const CleaningSets& sets, int64_t k);

// What predict needs beside model.npy.
SavedModel saved_cleaning(const CleaningSets& sets, SavedModel::Kind kind, bool has_intercept);

// The noise was drawn by the job, on a set known by name.
inline bool noise_was_drawn(const CleaningSets& sets) { return sets.train_index.defined(); }

// Into the folder, which exists: weights.csv, suspects.csv, the most suspect examples for a report
// (suspect_pictures.h), and noise.csv where the noise was drawn here. Each is written whole or not at all.
// Returns the names of the tables.
std::vector<std::string> write_clean_files(const CleaningSets& sets, const CleanResult& result,
                                           const std::string& folder);

}  // namespace bilevel
