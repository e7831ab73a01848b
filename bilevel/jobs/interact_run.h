#pragma once
// Parts of the job `interact`.

#include "bilevel/jobs/interact.h"

namespace bilevel {

// Throws OptionError for files that are missing, too many, or do not go together.
void check_task_sources(InteractJobOptions& options);
// For tasks in memory: throws OptionError where a field of files or of made-up tasks was given.
void refuse_task_sources(InteractJobOptions& options);

// `records`: of the history, about.
Json interact_json(const InteractJobResult& result, int64_t records);
// interaction.npy, interaction.csv, model.npy, and interaction.svg where gnuplot is here. Returns whether it
// is.
bool write_interact_files(const InteractJobResult& result);

}  // namespace bilevel
