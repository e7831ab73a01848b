#pragma once
// The two ways of the job `tune`, and what both write.

#include <cstddef>
#include <string>
#include <vector>

#include "bilevel/jobs/job_clock.h"
#include "bilevel/jobs/tune.h"

namespace bilevel {

// `result` gets the rest.
void tune_by_held_out(TuneJobOptions& options, const TableSets& sets, RunContext& context,
                      const JobClock& clock, TuneJobResult& result);
void tune_by_algorithm(TuneJobOptions& options, RegularizerSets sets, RunContext& context,
                       TuneJobResult& result);

// The features, the most regularised first.
std::vector<int64_t> by_regularizer(const Tensor& x);
// "most_regularised" and "least_regularised": so many features of either end.
void add_features(const TuneJobResult& result, size_t count, Json& json);
// Into the folder: regularisers.npy, regularisers.csv and model.npy. Returns their names.
std::vector<std::string> write_tune_files(const TuneJobResult& result);

}  // namespace bilevel
