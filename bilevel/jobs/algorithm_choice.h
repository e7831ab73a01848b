#pragma once
// Which algorithm a job runs, with its rates and lengths, batches and budget: the part that the options of
// every such job share.

#include <string>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/problem.h"
#include "bilevel/fields/fields.h"
#include "bilevel/fields/options_view.h"

namespace bilevel {

std::string word_of(OnFailure choice);
void read_word(const std::string& word, OnFailure& choice);

struct AlgorithmChoice {
  std::string algorithm = "aid-cg";
  AlgorithmSettings settings = {};
  SolveOptions solve = {};
  static const Fields<AlgorithmChoice>& fields();
  // Without the choice of one, for jobs that run several.
  static const Fields<AlgorithmChoice>& fields_of_settings();
};

// Plain steps for x where the algorithm's rates fall in fixed ratios and no other optimiser was given.
// `longest` is how far the first of them moves an entry of x, which is Adam's rate by default; a rate that is
// given stays. Call it before finish().
void set_fixed_ratio_defaults(const Given& given, const Problem& problem, double longest,
                              AlgorithmChoice& choice);

// An option that would be ignored is an error: throws OptionError where none of these algorithms reads one
// that was given. `chosen`: a diagnosis chose the method, and a curvature that was given was given to it.
void refuse_ignored(const OptionsView& options, const AlgorithmChoice& choice,
                    const std::vector<std::string>& algorithms, bool chosen);

// Once the defaults that depend on the problem are set: schedules end with the run, and a default of the
// job's that the algorithm does not read becomes the library's, so that no text mentions an unused value.
void finish(AlgorithmChoice& choice);
// The lengths of the schedules alone, for jobs that run several algorithms.
void set_schedule_lengths(AlgorithmChoice& choice);

}  // namespace bilevel
