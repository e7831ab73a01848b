#pragma once
// What a search shows: JSON for programs, tables for people, files in its folder.

#include <string>

#include "bilevel/nas/network.h"
#include "bilevel/nas/search.h"
#include "cli/auto_method.h"
#include "cli/json.h"

namespace bilevel::cli {

struct SearchOutput {
  const nas::SearchSpace& space;
  const nas::SearchOptions& options;
  const nas::SearchSummary& summary;
  const nas::Benchmark* benchmark = nullptr;
  std::string data = {}, folder = {};
  int64_t parameters = 0, multiply_adds = 0;  // of the genotype's network at the space's own size
  AutoFlags automatic = {};
};

Json search_json(const SearchOutput& output);
void print_search(const SearchOutput& output);
std::string epoch_line(const nas::SearchSpace& space, const nas::EpochRecord& record, int64_t epochs);
void write_search(const SearchOutput& output);  // genotype.txt, genotype.json, cell.svg

}  // namespace bilevel::cli
