#pragma once
// FSLA's general form (Lemma 2): df/dx - sum_k beta_k s_k over sequences of inner points w_k, vectors p_k and
// coefficients beta_k. Back-propagation, Neumann series and conjugate gradients are choices of the sequences.
// The printed product order holds for backward mode; forward mode is the recursion of Eq. 8
// (docs/mathematics.md, "Estimators").

#include <vector>

#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

// Both return the sum over k = 0 .. K-1 (without df/dx); K = betas.size() is the number of summands.

// A coefficient may be a number or, where rates are learned per tensor, a diagonal matrix.

// s_k = C(w_k) prod_{s=k+1..K-1} (I - beta_s H(w_s)) p: K - 1 Hessian and K cross products. `gathered`, if
// given, receives the sum of the vectors that C was applied to.
Tensor general_backward_sum(Oracle& oracle, const Tensor& x, const std::vector<Tensor>& points,
                            const Tensor& p, const std::vector<StepRate>& betas,
                            const std::vector<Batch>& batches = {}, Tensor* gathered = nullptr);
// v_{k+1} = (I - beta_k H(w_k)) v_k + beta_k p_k from v_0 = 0, then C(w_K) v_K: K - 1 Hessian and 1 cross
// product. `points` holds w_0 .. w_K, one more than `betas` and `ps`. `solution`, if given, receives v_K.
Tensor general_forward_sum(Oracle& oracle, const Tensor& x, const std::vector<Tensor>& points,
                           const std::vector<Tensor>& ps, const std::vector<StepRate>& betas,
                           const std::vector<Batch>& batches = {}, Tensor* solution = nullptr);

// Backward mode over the iterates of the inner loop with its rates: for gradient descent that is reverse
// mode, but for the terms of a learned rate or start, of which Lemma 2 knows nothing.
class GeneralBackward : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "general-backward"; }
  bool implicit() const override { return false; }
  EstimatorTraits traits() const override { return {.approach = Approach::all_steps, .plain_steps = true}; }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

// Forward mode over the same iterates, with p_k = df/dw at w_k: what FSLA tracks with its single vector v.
class GeneralForward : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "general-forward"; }
  // As a series: its v approaches H^-1 df/dw as the iterates settle.
  bool implicit() const override { return true; }
  EstimatorTraits traits() const override { return {.approach = Approach::all_steps, .plain_steps = true}; }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

}  // namespace bilevel
