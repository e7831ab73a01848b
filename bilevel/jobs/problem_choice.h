#pragma once
// Which of the problems known by name a job works on, and the defaults that an algorithm takes from it: the
// part that the options of solve, check, compare and diagnose share.

#include <functional>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/nas/synthetic_supernet.h"
#include "bilevel/problems/cleaning_sets.h"
#include "bilevel/problems/registry.h"

namespace bilevel {

struct ProblemChoice {
  std::string problem = {};
  ProblemOptions data = {};
  nas::SyntheticSupernet supernet = {};
  std::string named_data = {};             // of hyper-cleaning: an image set with noise drawn on its labels
  NamedCleaningOptions named = {};         // its options, as `clean` has them
  std::function<NamedProblem()> own = {};  // makes a user-defined problem, in place of a named one
  static const Fields<ProblemChoice>& fields();
};

// Of problems/ and, from nas/, the supernet.
std::vector<ProblemRow> all_problem_rows();

// `options` holds `choice`. Throws OptionError where only some of the files of a user's own data are given,
// and where an option belongs to another problem. A user-defined problem has its own data and types: options
// that say which are refused.
NamedProblem make_problem(const OptionsView& options, ProblemChoice& choice, const Given& given);

// Digests of what the problem was made of; the seed tells the rest.
std::vector<std::string> digests_of(const NamedProblem& problem, const ProblemChoice& choice);

// Steps and rates from the problem, unless they were given: T = 10 where w is warm-started, the
// problem's own number, which solves it, where it starts afresh. Then finish().
void set_problem_defaults(const Given& given, const NamedProblem& problem, AlgorithmChoice& choice);

}  // namespace bilevel
