#pragma once
// The algorithms by the names of the literature, for programs that take the name from a user.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/hoag.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/fields/own_options.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel {

// What a user gave before it was known for which algorithm, and what works with any of them (defaults of a
// problem, repairs): the options of all. A row takes from it what its own options have.
struct AlgorithmSettings {
  InnerOptions inner = {};  // T, rate and optimiser of double loops; single loops take the rate
  OuterOptions outer = {};
  EstimatorSettings hypergradient = {};  // terms: K of series and CG, Q of stocBiO; truncate: K of K-RMD
  std::string method = "cg";             // of double-loop: any estimator
  bool with_bound = false;               // of double loops: a bound on every hypergradient's error
  double growth = 0;                     // of aid-increasing: T_k = ceil(growth (k+1)^(1/4)); 0 = T
  double linear_rate = 0;                // of series and of single-loop algorithms; 0 = the inner rate
  Schedule linear_schedule = {};         // of v's own steps, by iterations: soba, saba, ma-soba, amigo
  double strong_convexity = 0;   // of stocbio: mu in the decay of its Hessian batches; 0 = all of one size
  int64_t hessian_batch = 0;     // of stocbio: B of those batches; 0 = the run's inner batch
  bool single_sample = true;     // of bsa and ttsa: one example a derivative, unless the run is on full sets
  double momentum_decay = 0.9;   // of fsla and its kin: how much of the momentum the first step forgets
  std::string v_at = "before";   // of fsla: v moves at the w before (line 7) or after (Eq. 10) the inner step
  HoagTolerance tolerance = {};  // of hoag: how precisely it solves, along the run
  bool adaptive_step = true;     // of hoag: adapts the outer rate; false = the outer optimiser's own steps
  // vrbo, f2sa and bome take inner.steps and inner.rate for plain gradient steps, soba and its kin the rate.
  // The newest sample's part in the averaged direction of ma-soba, sustain and mrbo, in (0, 1]; 1 averages
  // nothing, 0.1 about ten samples.
  double averaging = 0.1;
  int64_t period = 10;              // of vrbo: iterations from one large batch to the next
  int64_t large_batch = 0;          // of vrbo: examples; 0 = the full sets
  double penalty = 10;              // of f2sa: lambda of the first iteration; its bias is of order 1 / lambda
  double penalty_growth = 1.0 / 7;  // of f2sa: lambda_k = penalty (k+1)^growth; the paper's for noisy levels
  double joint_rate = 0;            // of bome: w's rate beside x's; 0 = the outer rate, as in the paper
  double barrier = 0.5;             // of bome: its eta, the paper's
  static const Fields<AlgorithmSettings>& fields();  // of those that a command has flags for
};

// An algorithm from settings: of a row below, or a user's own, which takes from them what it knows.
using MakeAlgorithm = std::function<std::unique_ptr<Algorithm>(const AlgorithmSettings& settings)>;

// What decides sensible defaults: whether w begins again in every iteration, is warm-started, or the
// algorithm is made for minibatches.
enum class Family { cold, warm, stochastic };

struct AlgorithmRow {
  std::string name;
  std::string summary;
  Family family;
  OwnOptions
      options;  // of its own struct, such as SobaOptions; options_read() says which count with settings
  MakeAlgorithm make;
  // From its own options by name; those that are not given have their defaults. Throws std::invalid_argument.
  std::function<std::unique_ptr<Algorithm>(const NamedWords& given)> make_with;
  // All its rates fall together, in ratios that its proof needs fixed: x takes plain steps, and Adam, which
  // has its own scale, only where a user asks for it.
  bool fixed_ratios = false;
};
const std::vector<AlgorithmRow>& algorithm_rows();
const AlgorithmRow& find_algorithm(const std::string& name);  // throws std::invalid_argument, with all names
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmSettings& settings);
// {{"inner_rate", {"0.1"}}, {"averaging", {"0.5"}}}
std::unique_ptr<Algorithm> make_algorithm_with(const std::string& name, const NamedWords& given);

}  // namespace bilevel
