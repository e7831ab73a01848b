#pragma once
// `--method auto`: the command diagnoses its problem and goes on as if the recommended options had been
// typed. They are stored with the run as such, so that a run that is resumed does not diagnose again.

#include <CLI/CLI.hpp>
#include <string>

#include "bilevel/core/inner.h"
#include "bilevel/core/problem.h"
#include "cli/algorithm_options.h"
#include "cli/json.h"
#include "cli/progress.h"

namespace bilevel {
struct DiagnosedProblem;
}

namespace bilevel::cli {

struct AutoFlags {
  double accuracy = 0.01;
  std::string choice = {};  // JSON of what was chosen, in an option that no help shows; empty = nothing was
};
void add_auto_options(CLI::App& command, AutoFlags& flags);
// --accuracy is of --method auto alone.
void refuse_ignored_accuracy(const CLI::App& command, const AutoFlags& flags, bool wants_auto);

bool wants_auto(const AlgorithmFlags& flags);
// Before defaults are filled in: what is not given is chosen. `inner` holds a rate where `rate_is_given` says
// that the command has its own reasons for one. Says on stderr what was chosen and why.
void choose_method(CLI::App& command, const DiagnosedProblem& problem, AlgorithmFlags& algorithm,
                   AutoFlags& flags, Progress& progress, const InnerOptions& inner, bool rate_is_given);

// For the summary: "method" and "auto", where a method was chosen.
void add_choice(const AutoFlags& flags, Json& summary);

// After that, at the end of a run: the choice was made at the first x; where its error at the last one can be
// measured it goes into the summary ("error_at_end" of "auto"), with a warning there and on stderr where it
// is above the wished accuracy.
void measure_choice_at_end(const AutoFlags& flags, const Problem& problem, const AlgorithmSettings& settings,
                           const SolveSummary& run, const CommonOptions& common, Json& summary);

}  // namespace bilevel::cli
