#pragma once
// The job `query`: looks up the accuracies of trained cells in the tables of NAS-Bench-201 and NAS-Bench-101.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct QueryJobOptions {
  std::string benchmark = {};               // the table's file
  std::vector<std::string> genotypes = {};  // as text or JSON
  std::string file = {};                    // and those of a file, one a line
  std::string space = {};                   // of the genotypes; empty = the table's
  std::vector<std::string> hashes = {};     // of NAS-Bench-101's graphs
  int64_t best = 0;                         // or so many of the best cells
  std::string by = {};                      // an accuracy column; empty = the table's last
  bool allow_missing = false;
  Given given = {};
  static const Fields<QueryJobOptions>& fields();
};

struct QueryJobResult {
  std::vector<nas::BenchmarkEntry> entries = {};
  std::map<std::string, double> optima = {};  // the best of the table, by column
  Json json = {};
};
QueryJobResult run_query(QueryJobOptions options, RunContext& context);

}  // namespace bilevel
