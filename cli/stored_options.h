#pragma once
// Options that are not typed: those of the file that --config names, and those of the run that --resume
// names.

#include <string>

#include "bilevel/fields/options_view.h"
#include "cli/process_options.h"

namespace bilevel::cli {

// Gives the options of the job and of the process what the file or the run has, unless they were typed. A
// file is a run's config.json, another JSON object of fields and values, or TOML. Throws OptionError that
// names file and option, also where a resumed run is given options that it did not begin with: only where it
// runs and where its files are may change.
void take_stored_options(const std::string& job, OptionsView options, ProcessOptions& process);

}  // namespace bilevel::cli
