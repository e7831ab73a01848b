#pragma once
// TTSA (Hong, Wai, Wang and Yang 2020): one inner step and one outer step an iteration, on two time scales,
//
//     w <- w - inner_rate (k+1)^(-2/5) grad_w g,     x <- x - rate (k+1)^(-3/5) (grad_x f - C v),
//
// so that x moves ever more slowly against w, with v from BSA's estimator (randomized_series.h) at the new w:
// BSA's step with T = 1 and these schedules. The two schedules are the rule itself and take the place of
// those in the options.

#include <memory>
#include <string_view>

#include "bilevel/algorithms/bsa.h"
#include "bilevel/algorithms/randomized_series.h"

namespace bilevel {

struct TtsaOptions {
  InnerOptions inner = {};      // but for the number of steps, which is one, and the schedule
  OuterOptions outer = {};      // but for the schedule
  double inner_exponent = 0.4;  // both as the paper takes them for a non-convex outer problem
  double outer_exponent = 0.6;
  RandomizedSeriesOptions series = {};
  void validate() const;
  static const Fields<TtsaOptions>& fields();
};

class Ttsa : public Bsa {
 public:
  explicit Ttsa(const TtsaOptions& options);
  std::string_view name() const override { return "ttsa"; }
};

}  // namespace bilevel
