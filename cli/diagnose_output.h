#pragma once
// A diagnosis as text and as JSON, and the recommendation as options of other commands.

#include <string>
#include <utility>
#include <vector>

#include "bilevel/check/diagnose.h"
#include "bilevel/jobs/recommended_options.h"
#include "cli/json.h"

namespace bilevel::cli {

// Name and value of each option that carries out the recommendation; the names differ by one (the rate of a
// series) from check to the commands that run an algorithm.
using OptionList = std::vector<std::pair<std::string, std::string>>;
OptionList check_options(const Diagnosis& diagnosis, bool rate_is_learned);
OptionList algorithm_options(const Diagnosis& diagnosis, bool rate_is_learned);

// `commands` are the lines to type.
Json diagnosis_json(const Diagnosis& diagnosis, const std::vector<std::string>& commands);
void print_diagnosis(const Diagnosis& diagnosis, const std::vector<std::string>& commands);

}  // namespace bilevel::cli
