#pragma once
// Whether a search was worth it, asked of rows that it has not seen.

#include <cstdint>
#include <functional>

#include "bilevel/core/tensor.h"

namespace bilevel {

// What one of two models saves in the mean loss.
struct Gain {
  double mean = 0, error = 0;
  bool clear() const;  // more than two standard errors: one is exceeded by chance one time in six
};
Gain gain_of(const Tensor& gains);  // one for each row

// Nested cross-validation: `gains` repeats the search without the rows of the index and returns what it saves
// on each of them, or an undefined tensor where there are too few others. The parts are dealt out evenly over
// `strata`, int64, 0 .. count-1. It ends where the parts so far save so little that all of them, at this
// rate, would not make one standard error.
Gain gain_on_unseen_rows(const Tensor& strata, int64_t count, uint64_t seed,
                         const std::function<Tensor(const Tensor& unseen)>& gains);

// How likely each of some models is the one that predicts new rows, as shares of the whole: `log_likelihood`
// of each model (the last dimension) under weights of the rows that add up to their number, on average over
// weights as a Bayesian bootstrap draws them (pseudo-BMA+: Yao et al. 2018). What is clearly best has it all,
// and near ties are shared: the best of several that differ by chance is no reason to leave the others out.
Tensor bootstrap_shares(int64_t rows, uint64_t seed,
                        const std::function<Tensor(const Tensor& weights)>& log_likelihood);

}  // namespace bilevel
