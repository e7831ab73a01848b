#include "bilevel/jobs/clean.h"

#include <fmt/format.h>

#include <utility>

#include "bilevel/data/labels.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/clean_run.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/tables/scaled_table.h"

namespace bilevel {
namespace {

void mark_given(CleanJobOptions& o) {
  CleanJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
}

// The noise model runs on the CPU: on another device the weights are learned, unless somebody insists.
bool noise_model_runs_here(const CleanJobOptions& o, bool has_valid) {
  if (o.compute.device == "cpu") return true;
  if (!insists_on_table(o, has_valid)) return false;
  throw OptionError(fmt::format("{}: {} runs on the CPU; use {}, or {} with a {}",
                                named("device", o.compute.device), named("by", clean_ways().table),
                                named("device", "cpu"), named("by", clean_ways().algorithm), named("valid")));
}

// False: the files hold pictures, or a table whose dense form is too large, and no option insists.
bool is_for_noise_model(const CleanJobOptions& o, const CleaningSets& sets, const std::string& data) {
  const Features& train = sets.train.features;
  const bool fits = is_small_enough({&train, &sets.valid.features, &sets.test.features}, sets.classes);
  if (!insists_on_table(o, sets.valid.size() > 0) && (!fits || sets.image.size() > 1)) return false;
  if (fits) return true;
  throw OptionError(
      fmt::format("{}: {} has {} rows of {} columns and {} classes, and it takes sets of at most {} numbers, "
                  "by columns and by classes; use {} with a {}",
                  named("by", clean_ways().table), data, train.rows(), train.columns(), sets.classes,
                  largest_table, named("by", clean_ways().algorithm), named("valid")));
}

// What is wrong with the algorithm's options by themselves, before the data are read.
void check_algorithm(const CleanJobOptions& o, const RunContext& context) {
  refuse_ignored_accuracy(o.given, o.automatic, automatic_choice(context), wants_auto(o.algorithm));
  (void)find_algorithm(o.algorithm.algorithm);
}

CleaningSets cleaning_sets_of(const ExampleSets& data, at::ScalarType dtype) {
  ExampleSets all = completed(data, dtype);
  // Every training example of a class without one would look suspect.
  if (all.valid.size() > 0) {
    check_labels(all.valid.labels, static_cast<int64_t>(all.class_names.size()), true, "valid");
  }
  CleaningSets sets;
  sets.class_names = all.class_names;
  sets.classes = static_cast<int64_t>(all.class_names.size());
  for (int64_t k = 0; k < sets.classes; ++k) sets.label_values.push_back(k);
  sets.schema = std::move(all.schema);
  sets.train = {std::move(all.train.features), all.train.labels};
  sets.valid = {std::move(all.valid.features), all.valid.labels};
  sets.test = {std::move(all.test.features), all.test.labels};
  return sets;
}

CleanJobResult clean_sets(CleanJobOptions& o, CleaningSets sets, const std::string& data, bool by_table,
                          RunContext& context, JobClock clock) {
  CleanJobResult result;
  result.data = data;
  result.model = o.model;
  result.sets = std::move(sets);
  by_table = by_table && is_for_noise_model(o, result.sets, data.empty() ? "train" : data);
  if (by_table) {
    refuse_ranks(context, named("by", clean_ways().table),
                 fmt::format("use {} with a {}", named("by", clean_ways().algorithm), named("valid")));
  }
  if (!by_table) {
    for (ExampleSet* set : {&result.sets.train, &result.sets.valid, &result.sets.test}) {
      set_dtype(set->features, o.compute);
    }
  }
  result.by = by_table ? clean_ways().table : clean_ways().algorithm;
  (by_table ? clean_by_noise_model : clean_by_weights)(o, context, clock, result);
  return result;
}

}  // namespace

CleanJobResult run_clean(CleanJobOptions o, RunContext& context) {
  const JobClock clock;
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, clean_ways());
  const bool by_table = wants_table(o) && noise_model_runs_here(o, !o.files.valid.features.empty());
  check_clean_sources(o, by_table);
  (void)apply(o.compute, context);
  check_algorithm(o, context);
  context.progress("clean: reading the data");
  tell_notes(o.files.reading, context);
  CleaningSets sets = read_clean_data(o, by_table);
  return clean_sets(o, std::move(sets), o.data.empty() ? o.files.train.features : o.data, by_table, context,
                    clock);
}

CleanJobResult run_clean(CleanJobOptions o, const ExampleSets& data, RunContext& context) {
  const JobClock clock;
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, clean_ways());
  refuse_clean_sources(o);
  const bool has_valid = data.valid.size() > 0;
  const bool by_table = wants_table(o) && noise_model_runs_here(o, has_valid);
  if (!by_table && !has_valid) {
    throw OptionError(fmt::format("{} needs validation examples whose labels are right",
                                  named("by", clean_ways().algorithm)));
  }
  (void)apply(o.compute, context);
  check_algorithm(o, context);
  const at::ScalarType dtype = reading_dtype(o.compute, o.given(o.compute.dtype), by_table);
  return clean_sets(o, cleaning_sets_of(data, dtype), "", by_table, context, clock);
}

}  // namespace bilevel
