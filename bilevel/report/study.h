#pragma once
// Many runs as a study: runs that differ in nothing but their seed are samples of one configuration, and what
// is said of a configuration is a mean, a spread and how many samples there were.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/report/report.h"

namespace bilevel {

struct Statistic {
  int64_t count = 0;
  double mean = 0;
  double deviation = 0;  // of the sample, with count - 1 in the denominator; 0 where there is one value only
  double low = 0, high = 0;
};
// Values that are not finite are left out.
Statistic statistic_of(const std::vector<double>& values);

struct StudyNumber {
  std::string name;   // for machines: "cifar10_test"
  std::string title;  // for people: "CIFAR-10 test"
  bool percent = false;
  bool seconds = false;
};

// Runs that have all options in common but the seed.
struct StudyGroup {
  std::vector<std::string> values;  // of the options that the study is told apart by
  std::string label;                // the same as one text, for legends: "idarts, beta-decay"
  std::vector<size_t> runs;         // positions; those that finished, one of every seed
  std::vector<uint64_t> seeds;      // theirs
  std::vector<Statistic> numbers;   // one for each number of the study
};

// As a person types it; "command" is none, and stays.
std::string shown_option(const std::string& option);

struct Study {
  // As few options as tell the groups apart, "--method"; "command" where commands differ. What else differs
  // along with them, and what differs within a group but decides no result (threads, folders), is named
  // apart.
  std::vector<std::string> options, going_along, ignored;
  std::vector<StudyNumber> numbers;  // in the order of the first run that has them
  std::vector<StudyGroup> groups;    // in the order of their first runs
  std::vector<std::string> notes;    // which runs do not count, and why
  std::vector<std::string> run_names;
  std::vector<std::string> files;  // of the table as CSV, Markdown and LaTeX, where they were written
  bool repeated() const;           // some configuration has more than one run
};
// `by` names the options that tell groups apart; empty = all that differ. Throws std::invalid_argument for a
// name that no run has.
Study make_study(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                 const std::vector<std::string>& by = {});

}  // namespace bilevel
