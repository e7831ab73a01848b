#pragma once
// What `bilevel clean` hands back: one JSON object, a table for a reader, and files.

#include <string>

#include "bilevel/clean/clean.h"
#include "cli/auto_method.h"
#include "cli/json.h"

namespace bilevel::cli {

struct CleanOutput {
  const CleaningSets& sets;
  const CleanReport& report;
  const CleanOptions& options;
  std::string data = {};  // the named set, or the training file
  std::string model = {};
  bool named = false;
  std::string folder = {};  // of the run
  double seconds = 0;       // of the whole command
  AutoFlags automatic = {};
};

Json clean_json(const CleanOutput& output);
void print_clean(const CleanOutput& output);
// Into the folder, which exists: weights.csv, suspects.csv, the most suspect examples for a report
// (suspect_pictures.h), and noise.csv where the noise was drawn here. Each is written whole or not at all.
void write_clean(const CleanOutput& output);

}  // namespace bilevel::cli
