#pragma once
// Parts of the job `interact`.

#include "bilevel/jobs/interact.h"
#include "bilevel/jobs/job_clock.h"

namespace bilevel {

// Throws OptionError for files that are missing, too many, or do not go together.
void check_task_sources(InteractJobOptions& options);
// For tasks in memory: throws OptionError where a field of files or of made-up tasks was given.
void refuse_task_sources(InteractJobOptions& options);

// Whether the way of tables is meant, as far as the options tell. `possible`: the tasks have examples of
// their own. Throws OptionError for an option that would be ignored.
bool wants_table(InteractJobOptions& options, bool possible, bool has_valid);
// By held-out rows; `result` has the sets and gets the rest.
void interact_by_held_out(InteractJobOptions& options, RunContext& context, const JobClock& clock,
                          InteractJobResult& result);

// Clusters, JSON and files of a result that has an answer, and the run's last word.
void finish_interact(const InteractJobOptions& options, RunContext& context, InteractJobResult& result);

Json interact_json(const InteractJobResult& result, const InteractJobOptions& options);
// interaction.npy, interaction.csv, model.npy, and interaction.svg where gnuplot is here. Returns whether it
// is.
bool write_interact_files(const InteractJobResult& result);

}  // namespace bilevel
