#pragma once
// What a search does, with the published set-ups as defaults: they depend on the space and on the method.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/inner.h"
#include "bilevel/core/outer.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/nas/guards/guard.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct SearchMethod {
  std::string name;
  std::string summary;
  bool moves_alpha = true;  // false: random searches
  // Of the options that not every method reads, those that it does, by their names in the job's field table.
  std::vector<std::string> reads = {};
};
const std::vector<SearchMethod>& search_methods();
const SearchMethod& find_search_method(
    const std::string& name);  // throws std::invalid_argument, with all names

// With a guard it found better cells of NAS-Bench-201 than iDARTS (docs/search.md).
constexpr const char* default_method = "darts-first-order";

struct SearchOptions {
  std::string method = default_method;
  int64_t epochs = 30;
  int64_t warmup_epochs = 0;  // the first of them move the weights alone
  int64_t batch = 64;         // of training and of validation images
  int64_t alpha_steps = 0;    // of an epoch; 0 = one pass over the training images by weight steps
  // Weights: T = inner.steps a step of alpha, at a rate that falls by a cosine to final_rate.
  InnerOptions inner = {};
  double final_rate = 0.001;
  double weight_decay = 5e-4;
  OuterOptions outer = {};  // alpha
  // terms = K of idarts, steps of cg; truncate = kept steps of truncated; curvature; differences.
  EstimatorSettings hypergradient = {};
  bool linear_rate_auto = false;  // 1 / largest curvature, measured every epoch, instead of linear_rate
  double temperature = 10;        // of gdas, falling to final_temperature along the search
  double final_temperature = 0.1;
  int64_t samples = 100;  // of random-sharing: genotypes that the trained weights rank

  int64_t score_images = 1000;       // validation images that measure the supernet after an epoch; 0 = all
  int64_t eigenvalue_products = 12;  // of Lanczos for the dominant eigenvalue in alpha; 0 = not measured

  GuardOptions guard = {};  // against collapse, along the whole search (guards/)

  std::string stop = "none";  // eigenvalue or skips
  int64_t stop_window =
      5;  // epochs that the eigenvalue is averaged over and compared across (Zela et al. 2020)
  double stop_ratio = 0.75;  // of the earlier average over the present one: below it the search ends
  int64_t most_skips = 2;    // that a normal cell may have under `skips`; DARTS+ (Liang et al. 2019) has 1

  std::string select = "argmax";  // perturbation: by what the supernet misses most (Wang et al. 2021)
  int64_t tune_epochs = 1;        // of the weights between two choices of `perturbation`

  uint64_t seed = 0;
  // Derivatives by the supernet's written-out passes (tape/) where it has them; false: by automatic
  // differentiation.
  bool tape = true;
  void validate() const;
};

// Of the papers and of the benchmarks' own code (NAS-Bench-201, NAS-Bench-1Shot1, DARTS), but for the guard:
// the papers' algorithms are bare, which is `guard = {}`.
SearchOptions default_search_options(const SearchSpace& space, const std::string& method);

// Weight steps before a step of alpha, and steps of alpha an epoch makes on so many training images.
int64_t weight_steps(const SearchOptions& options);
int64_t alpha_steps_an_epoch(const SearchOptions& options, int64_t training_images);
// The schedule of alpha's rate over a search of so many steps of alpha.
Schedule alpha_schedule(const SearchOptions& options, int64_t steps);
// Of the schedule's first `steps` factors, each raised to `power`: how far a rate goes, or (2) how far noise
// does. Long searches are added up in blocks of a thousandth of the steps before them, to about seven digits.
double sum_of_factors(const Schedule& schedule, int64_t steps, int power = 1);
// Of the guard where none is given: its own, or in proportion less where alpha goes less far than in the
// search that it was chosen in (GuardKind::travel), to two digits.
double default_guard_strength(const SearchOptions& options, int64_t training_images);
// Of the guard where none is given: its own (GuardKind::warmup), but at most a tenth of the epochs; 0 where
// there is no guard or its strength is 0.
int64_t default_warmup_epochs(const SearchOptions& options);

}  // namespace bilevel::nas
