#pragma once
// Searches side by side, several settings with several seeds each: what the items on iDARTS (Zhang et al.,
// ICML 2021) share.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/data/image_data.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/supernet_problem.h"
#include "reproduce/items.h"
#include "reproduce/statistic.h"
#include "reproduce/verdict.h"

namespace bilevel::reproduce {

// What all searches of an item have in common.
struct SearchGround {
  nas::SearchSpace space;
  std::unique_ptr<nas::SupernetProblem> problem;
  std::optional<ImageData> data;  // what the images are from; nothing where they are made up
  std::optional<nas::Benchmark> benchmark;
  std::string images;        // which, and how many
  std::string no_benchmark;  // why there is no table; empty where there is one, or where none exists
  std::vector<uint64_t> seeds;
};
// quick: a tiny supernet on a few images of CIFAR-10, else of Fashion-MNIST, else made-up ones. medium:
// CIFAR-10 at 16 x 16 and a narrow supernet of the published depth. full: the published one on CIFAR-10. Both
// with NAS-Bench-201's split where its file is found; throws std::runtime_error where CIFAR-10 is missing.
SearchGround search_ground(const std::string& space, const ReproduceOptions& options);

struct SearchSetting {
  std::string label;
  nas::SearchOptions options;
  nas::MakeSearchRule rule = {};  // empty = the method's
};
// The published set-up of the method, shortened where the scale is quick or medium. Alpha moves as often in
// every setting, at full once for each batch of one pass over the training images, as in the authors' code: T
// steps of the weights come before each of its moves.
SearchSetting search_setting(const std::string& label, const SearchGround& ground, const std::string& method,
                             const ReproduceOptions& options);
// iDARTS with T weight steps and K Hessian products.
SearchSetting idarts_setting(const SearchGround& ground, int64_t T, int64_t K,
                             const ReproduceOptions& options);

struct SearchRuns {
  SearchSetting setting;
  std::vector<uint64_t> seeds;
  std::vector<nas::SearchSummary> runs;  // of each seed
  std::vector<nas::BenchmarkValues>
      reached;  // by the cell that each returned; empty where it is not in a table

  Statistic accuracy(const std::string& column) const;
  // Of the largest weights after an epoch (from 1), where the table has it.
  Statistic accuracy_at(const std::string& column, int64_t epoch) const;
  Statistic regret_at(const std::string& column, int64_t epoch) const;
  // For verdicts, by seed: the accuracies, or the mean regret over the epochs up to the last one given, which
  // says how soon good cells are found.
  Side accuracies(const std::string& column) const;
  Side mean_regrets(const std::string& column, int64_t last_epoch) const;
  int64_t epochs() const { return static_cast<int64_t>(runs.front().history.size()); }
};
SearchRuns run_searches(SearchGround& ground, const SearchSetting& setting, const ReproduceOptions& options);
// Of every setting with every seed, shared by the ranks where there are some.
std::vector<SearchRuns> run_searches(SearchGround& ground, const std::vector<SearchSetting>& settings,
                                     const ReproduceOptions& options);

// Every seed by itself, as JSON: what it reached, its cell, its costs and its way.
Json runs_json(const std::vector<SearchRuns>& all);
// The same epoch by epoch into ITEM.csv in the folder that --out names; nothing without one.
void save_runs(const std::vector<SearchRuns>& all, const std::string& file, const ReproduceOptions& options);

// What a reader must know of such runs: images, sizes, lengths, and what is missing.
Json search_notes(const SearchGround& ground, const std::vector<SearchRuns>& all,
                  const ReproduceOptions& options);

}  // namespace bilevel::reproduce
