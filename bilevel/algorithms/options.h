#pragma once
// Which options an algorithm reads. One that it does not read would be accepted and change nothing, so every
// command that takes options for any algorithm asks here and refuses it by name. What an algorithm reads are
// the fields of its own options (registry.h); tests/algorithms/options_test.cpp compares them with what
// changes a run's result.

#include <set>
#include <string>
#include <vector>

namespace bilevel {

struct AlgorithmRow;
struct AlgorithmSettings;

// The names of all fields that some algorithm has and that AlgorithmSettings can give it.
const std::vector<std::string>& algorithm_options();

// What an algorithm reads with these settings: its own fields, without those that another setting turns off.
// Of double-loop's those of its method; a momentum only of an optimiser that has one.
std::set<std::string> options_read(const AlgorithmRow& row, const AlgorithmSettings& settings);

// Throws OptionError, with the option's name, its value where one is given and the algorithms that
// read it, where none of these reads the option.
void require_read(const std::vector<std::string>& algorithms, const AlgorithmSettings& settings,
                  const std::string& option, const std::string& value = "");

}  // namespace bilevel
