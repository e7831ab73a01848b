#pragma once
// The folder of a long run: the options that it was started with, so that it can go on without repeating
// them, and whatever the command writes beside them.

#include <CLI/CLI.hpp>
#include <string>

namespace bilevel::cli {

// runs/COMMAND-DATE-TIME-SEED, not there yet.
std::string default_run_folder(const std::string& command, uint64_t seed);

// Every option that was given, by name, as config.json in the folder.
void save_options(const CLI::App& command, const std::string& folder);
// Options that are stored there and were not given now get the stored values, as if they had been typed.
// Throws std::runtime_error where the folder has none, or one that this command does not know.
void load_options(CLI::App& command, const std::string& folder);

}  // namespace bilevel::cli
