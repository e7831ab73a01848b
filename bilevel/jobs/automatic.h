#pragma once
// The method `auto`: a job diagnoses its problem and then runs as if the recommended options had been given.
// They are stored with the run as such, and the choice beside them, so that a run that is resumed does not
// diagnose again.

#include <string>

#include "bilevel/core/inner.h"
#include "bilevel/core/problem.h"
#include "bilevel/fields/fields.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;
struct DiagnosedProblem;

struct AutomaticOptions {
  double accuracy = 0.01;
  static const Fields<AutomaticOptions>& fields();
};

// What was chosen for this run, now or when it began; null where nothing was.
Json automatic_choice(const RunContext& context);
// An accuracy is of `auto` alone.
void refuse_ignored_accuracy(const Given& given, const AutomaticOptions& automatic, const Json& choice,
                             bool wants_auto);

inline bool wants_auto(const AlgorithmChoice& algorithm) { return algorithm.settings.method == "auto"; }

// Before defaults are filled in: what is not given is chosen. `inner` holds a rate where `rate_is_given` says
// that the job has its own reasons for one. Says what was chosen and why. `options` holds `algorithm`.
void choose_method(OptionsView options, const Given& given, const DiagnosedProblem& problem,
                   const AlgorithmChoice& algorithm, const AutomaticOptions& automatic, RunContext& context,
                   const InnerOptions& inner, bool rate_is_given);

// For the summary: "method" and "auto", where a method was chosen.
void add_choice(const Json& choice, Json& summary);

// After that, at the end of a run: the choice was made at the first x; where its error at the last one can be
// measured it goes into the summary ("error_at_end" of "auto"), with a warning there where it is above the
// target accuracy.
void measure_choice_at_end(const AutomaticOptions& automatic, const Problem& problem,
                           const AlgorithmSettings& settings, const SolveSummary& run,
                           const RunContext& context, Json& summary);

}  // namespace bilevel
