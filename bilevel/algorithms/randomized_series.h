#pragma once
// The estimator of BSA and TTSA (Ghadimi and Wang 2018; Hong et al. 2020): one random summand of a Neumann
// series in place of the sum,
//
//     v = b eta prod_{i=1..k} (I - eta H(z_i)) grad_w F,   k uniform on 0 .. b-1,
//
// with its own sample z_i for every product. Its expectation is the series of b summands, neumann(b-1); its
// variance is what the two algorithms pay for that. Also here: how large their samples are.

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/streams.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct RandomizedSeriesOptions {
  int64_t terms = 10;  // b; (b - 1) / 2 Hessian products on average
  double rate = 0;     // eta, at most 1 / L; 0 = the inner rate as given, without its schedule
  // One example for every derivative, as in the papers, wherever the run reads minibatches at all. A run on
  // full sets (batch size 0) stays on full sets: nobody who asks for those wants single examples.
  bool single_sample = true;
  CurvatureOptions curvature = {};
  void validate(std::string_view algorithm) const;
  static const Fields<RandomizedSeriesOptions>& fields();
};

// Examples to read where the run's batch size is `run_batch`; 0 = the full set.
int64_t sample_size(const RandomizedSeriesOptions& options, int64_t run_batch);

// At the end of `inner`. Draws k, the k samples, and those of f and of the cross product. Status: ok;
// diverged where the vector grew along the product; not_finite.
Hypergradient randomized_series(Oracle& oracle, const Tensor& x, Trajectory& inner, Streams& streams,
                                const RandomizedSeriesOptions& options);

}  // namespace bilevel
