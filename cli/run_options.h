#pragma once
// What every long command says about its run: where its folder is, which one it goes on with, and which
// options it takes from a file.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/run/run_folder.h"
#include "cli/common.h"

namespace bilevel::cli {

struct RunFlags {
  std::string out = {}, resume = {}, config = {};
  double save_seconds = 10;
};
// --out, --resume, --config, --save-every. An option that such a command must have cannot be required() of
// CLI11: it may stand in the file.
void add_run_options(CLI::App& command, RunFlags& flags);

// First of all: options that --config's file or the resumed run's config.json has and that were not typed get
// these values, as if they had been, and a resumed run gets its threads back. The file is a run's
// config.json, any JSON object of option names and values, or TOML. Throws std::invalid_argument naming file
// and option, also where a resumed run is told to be another one than it began as: only where it runs and
// where its files lie may be said anew.
void take_options(CLI::App& command, const RunFlags& flags, CommonOptions& common);

// Whether --resume names a run that is finished; says so and repeats its summary, so that nothing is left to
// do.
bool repeats_finished_run(const RunFlags& flags, const CommonOptions& common);

// Last before the work: the folder, new or resumed.
RunFolder open_run(CLI::App& command, const RunFlags& flags, uint64_t seed);
// Where a resumed run goes on from; warns of a damaged checkpoint and of a machine with other bits.
std::optional<Checkpoint> load_run(RunFolder& run, const RunFlags& flags, const CommonOptions& common);

// runs/COMMAND-DATE-TIME-SEED, not there yet.
std::string default_run_folder(const std::string& command, uint64_t seed);
// {"command", "version", "options": {given}, "effective": {all that have a value}}
nlohmann::ordered_json options_json(CLI::App& command);
// As if it had been typed, so that a resumed run has it too.
void set_option(CLI::App& command, const std::string& name, const std::string& value);

// What is said where a signal ended the run.
void say_interrupted(const CLI::App& command, const RunFolder& run);

}  // namespace bilevel::cli
