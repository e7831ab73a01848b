#include "bilevel/report/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"

namespace bilevel {
namespace {

// Options that say where and how a run was watched, not what it computes.
bool decides_nothing(const std::string& option) {
  static const std::set<std::string> names{"device", "threads", "split", "benchmark", "data_dir"};
  return names.contains(option);
}

std::string value_in(const RunData& run, const std::string& option) {
  return option == "command" ? run.facts.command : run.effective(option);
}

bool was_given(const std::vector<RunData>& runs, const std::string& option) {
  return option == "command" || std::any_of(runs.begin(), runs.end(), [&](const RunData& run) {
           const auto given = run.config.find("options");
           return given != run.config.end() && given->is_object() && given->contains(option);
         });
}

// In the order of the command's help.
std::vector<std::string> all_options(const std::vector<RunData>& runs) {
  std::vector<std::string> options{"command"};
  for (const RunData& run : runs) {
    const auto effective = run.config.find("effective");
    if (effective == run.config.end() || !effective->is_object()) continue;
    for (const auto& [name, value] : effective->items()) {
      if (std::find(options.begin(), options.end(), name) == options.end()) options.push_back(name);
    }
  }
  return options;
}

bool differs(const std::vector<RunData>& runs, const std::string& option) {
  return std::any_of(runs.begin(), runs.end(), [&](const RunData& run) {
    return value_in(run, option) != value_in(runs.front(), option);
  });
}

std::vector<std::string> key_of(const RunData& run, const std::vector<std::string>& options) {
  std::vector<std::string> key;
  for (const std::string& option : options) key.push_back(value_in(run, option));
  return key;
}

bool is_number(const std::string& text) {
  char* end = nullptr;
  (void)std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// A number that was not given and that every run of a configuration has for itself was measured on what the
// seed drew, such as a rate by the data's curvature: it follows from the configuration and does not part it.
// `parted` are the options that do.
bool follows_from_the_seed(const std::vector<RunData>& runs, const std::vector<std::string>& parted,
                           const std::string& option) {
  std::map<std::vector<std::string>, std::vector<std::string>> values;
  for (const RunData& run : runs) values[key_of(run, parted)].push_back(value_in(run, option));
  bool several = false;
  for (auto& [key, group] : values) {
    if (!std::all_of(group.begin(), group.end(), is_number)) return false;
    several = several || group.size() > 1;
    std::sort(group.begin(), group.end());
    if (std::adjacent_find(group.begin(), group.end()) != group.end()) return false;
  }
  return several;
}

size_t groups_by(const std::vector<RunData>& runs, const std::vector<std::string>& options) {
  std::set<std::vector<std::string>> keys;
  for (const RunData& run : runs) keys.insert(key_of(run, options));
  return keys.size();
}

// As few of `differing` as part the runs as all of them do: another method brings rates of its own along,
// which are no names for it. What was typed comes first.
std::vector<std::string> telling(const std::vector<RunData>& runs, std::vector<std::string> differing) {
  std::stable_sort(differing.begin(), differing.end(), [&](const std::string& a, const std::string& b) {
    return was_given(runs, a) && !was_given(runs, b);
  });
  const size_t all = groups_by(runs, differing);
  std::vector<std::string> chosen;
  for (const std::string& option : differing) {
    const size_t before = groups_by(runs, chosen);
    if (before == all) break;
    chosen.push_back(option);
    if (groups_by(runs, chosen) == before) chosen.pop_back();
  }
  // What came early may be told by what came later.
  for (size_t i = chosen.size(); i-- > 0;) {
    std::vector<std::string> others = chosen;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (groups_by(runs, others) == all) chosen = others;
  }
  return chosen;
}

std::vector<std::string> asked_for(const std::vector<RunData>& runs, const std::vector<std::string>& by) {
  const std::vector<std::string> known = all_options(runs);
  std::vector<std::string> options;
  for (const std::string& name : by) {
    const std::string option = field_name(name);
    if (std::find(known.begin(), known.end(), option) == known.end()) {
      throw OptionError(
          fmt::format("{}: no run has an option {}; theirs are in the config.json of their folders",
                      named("by", name), named(option)));
    }
    if (option == "seed") {
      throw OptionError(
          fmt::format("{}: a study takes means over seeds; name options that differ", named("by", "seed")));
    }
    options.push_back(option);
  }
  return options;
}

void add_numbers(Study& study, const JobReport& job) {
  for (const FinalNumber& number : job.numbers) {
    const bool known = std::any_of(study.numbers.begin(), study.numbers.end(),
                                   [&](const StudyNumber& one) { return one.name == number.name; });
    if (!known) study.numbers.push_back({number.name, number.title, number.percent, number.seconds});
  }
}

std::vector<double> values_of(const StudyNumber& number, const StudyGroup& group,
                              const std::vector<JobReport>& jobs) {
  std::vector<double> values;
  for (const size_t run : group.runs) {
    for (const FinalNumber& one : jobs[run].numbers) {
      if (one.name == number.name) values.push_back(one.value);
    }
  }
  return values;
}

}  // namespace

Statistic statistic_of(const std::vector<double>& values) {
  Statistic s;
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    s.low = s.count == 0 ? value : std::min(s.low, value);
    s.high = s.count == 0 ? value : std::max(s.high, value);
    sum += value;
    ++s.count;
  }
  if (s.count == 0) return s;
  s.mean = sum / static_cast<double>(s.count);
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - s.mean) * (value - s.mean);
  }
  if (s.count > 1) s.deviation = std::sqrt(squares / static_cast<double>(s.count - 1));
  return s;
}

bool Study::repeated() const {
  return std::any_of(groups.begin(), groups.end(),
                     [](const StudyGroup& group) { return group.runs.size() > 1; });
}

std::string shown_option(const std::string& option) { return option == "command" ? option : flag_of(option); }

Study make_study(const std::vector<RunData>& runs, const std::vector<JobReport>& jobs,
                 const std::vector<std::string>& by) {
  Study study;
  study.run_names = names_of_runs(runs);
  std::vector<std::string> differing;
  for (const std::string& option : all_options(runs)) {
    if (option == "seed" || !differs(runs, option)) continue;
    (decides_nothing(option) ? study.ignored : differing).push_back(option);
  }
  std::vector<std::string> given, measured;
  std::copy_if(differing.begin(), differing.end(), std::back_inserter(given),
               [&](const std::string& option) { return was_given(runs, option); });
  for (const std::string& option : differing) {
    if (!was_given(runs, option) && follows_from_the_seed(runs, given, option)) measured.push_back(option);
  }
  std::erase_if(differing, [&](const std::string& option) {
    return std::find(measured.begin(), measured.end(), option) != measured.end();
  });
  study.ignored.insert(study.ignored.end(), measured.begin(), measured.end());
  study.options = by.empty() ? telling(runs, differing) : asked_for(runs, by);
  for (const std::string& option : differing) {
    const bool tells = std::find(study.options.begin(), study.options.end(), option) != study.options.end();
    if (!tells) study.going_along.push_back(option);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string& name = study.run_names[i];
    if (runs[i].facts.status != RunStatus::finished) {
      study.notes.push_back(
          fmt::format("{} does not count: it is {}, not finished.", name, name_of(runs[i].facts.status)));
      continue;
    }
    const std::vector<std::string> values = key_of(runs[i], study.options);
    auto group = std::find_if(study.groups.begin(), study.groups.end(),
                              [&](const StudyGroup& one) { return one.values == values; });
    if (group == study.groups.end()) {
      study.groups.push_back({.values = values, .label = {}, .runs = {}, .seeds = {}, .numbers = {}});
      group = study.groups.end() - 1;
    }
    // With options that were left out by --by, runs of one seed may be different ones.
    const auto same = std::find_if(group->runs.begin(), group->runs.end(), [&](size_t other) {
      return runs[other].facts.seed == runs[i].facts.seed &&
             key_of(runs[other], differing) == key_of(runs[i], differing);
    });
    if (same != group->runs.end()) {
      study.notes.push_back(fmt::format("{} does not count: it has the options and the seed of {}.", name,
                                        study.run_names[*same]));
      continue;
    }
    group->runs.push_back(i);
    group->seeds.push_back(runs[i].facts.seed);
    add_numbers(study, jobs[i]);
  }
  for (StudyGroup& group : study.groups) {
    std::vector<std::string> words;
    for (const std::string& value : group.values) words.push_back(value.empty() ? "\u2013" : value);
    group.label = words.empty() ? "all runs" : fmt::format("{}", fmt::join(words, ", "));
    for (const StudyNumber& number : study.numbers) {
      group.numbers.push_back(statistic_of(values_of(number, group, jobs)));
    }
  }
  return study;
}

}  // namespace bilevel
