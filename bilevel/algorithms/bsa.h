#pragma once
// BSA (Ghadimi and Wang 2018): T inner steps on single examples, then a hypergradient by one random summand
// of a Neumann series (randomized_series.h). Steps fall as the schedules of the two optimisers say. w goes on
// where the last T steps ended.

#include <memory>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/randomized_series.h"

namespace bilevel {

struct BsaOptions {
  InnerOptions inner = {};
  OuterOptions outer = {};
  RandomizedSeriesOptions series = {};
  void validate() const;
  static const Fields<BsaOptions>& fields();
};

class Bsa : public Algorithm {
 public:
  explicit Bsa(const BsaOptions& options);
  std::string_view name() const override { return "bsa"; }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  BsaOptions options_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
};

}  // namespace bilevel
