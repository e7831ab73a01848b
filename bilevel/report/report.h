#pragma once
// A run as one page that needs nothing else: no network, no script, no other file. It fits a phone, a dark
// room and a sheet of paper. What belongs to one kind of job only comes in as sections.

#include <string>
#include <utility>
#include <vector>

#include "bilevel/report/curve_group.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_folder.h"

namespace bilevel {

// A run's files as far as they are there and can be read.
struct RunData {
  RunFacts facts;
  Json config = Json::object();
  Json summary = Json::object();  // empty = it has not ended
  Metrics metrics;
  std::vector<std::string> notes;  // what could not be read, and why

  std::string effective(const std::string& option) const;  // the value of an option; empty = none
};
// Throws std::runtime_error unless run.json is that of a run.
RunData read_run_data(const std::string& folder);

struct ReportSection {
  std::string id, title;
  std::string content;  // HTML
};

// A number that a run ended with, of which a study takes means.
struct FinalNumber {
  std::string name;   // for machines: "cifar10_test"
  std::string title;  // for people: "CIFAR-10 test"
  double value = 0;
  bool percent = false, seconds = false;
};

// What a job adds to the page that every run has.
struct JobReport {
  std::string subject;                                         // "idarts on fashion-mnist"
  std::string result;                                          // one sentence; HTML
  std::vector<std::pair<std::string, std::string>> headlines;  // label and value, as text; at most six
  std::vector<CurveGroup> curves;                              // pictures that come first
  std::vector<std::string> hidden_measures;                    // shown elsewhere
  std::vector<ReportSection> sections;                         // after the curves
  std::vector<FinalNumber> numbers = {};                       // the most important first
};

std::string run_page(const RunData& run, const JobReport& job);

struct Study;  // bilevel/report/study.h
// One page for several runs: means and spreads by configuration, their curves together, what differs in their
// options, their results.
std::string comparison_page(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                            const Study& study);

// The names by which a page tells runs apart: their folders', or their paths where two have the same.
std::vector<std::string> names_of_runs(const std::vector<RunData>& runs);

}  // namespace bilevel
