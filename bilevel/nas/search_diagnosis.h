#pragma once
// A short look at a supernet before a search: how its curvature lies on the first batch, how much of the
// hypergradient comes through the weights there, and which of idarts, darts and darts-first-order that asks
// for. What is true on one batch at the first weights is all that it claims.

#include <cstdint>
#include <string>

#include "bilevel/core/oracle.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/nas/search_options.h"

namespace bilevel::nas {

struct SearchDiagnosis {
  std::string method;         // idarts, darts or darts-first-order
  std::string curvature;      // of the series: gauss-newton where the Hessian is not positive
  int64_t terms = 0;          // K of idarts
  double linear_rate = 0;     // 1 / the largest curvature there; an epoch measures it anew
  Spectrum hessian;           // its ends after a few products: the true ones lie outside
  Spectrum inverted;          // of the curvature that the series is on
  double implicit_share = 0;  // |what comes through the weights| / |df/dalpha|, by the longest series
  double error = 0;           // of the choice, against the longest series; NaN where that is the choice
  int64_t longest = 0;        // K of that
  std::string sentence;
  OracleCounts counts;
  double seconds = 0;
};

// `accuracy` is against a series of 16 products: on networks there is nothing exact to measure against. The
// problem is the supernet without weight decay, which is added here as a search adds it.
// At the first weights, or at those of a run.
SearchDiagnosis diagnose_search(const Problem& supernet, const SearchOptions& options, double accuracy = 0.1,
                                const Tensor& at_w = {}, const Tensor& at_x = {});

}  // namespace bilevel::nas
