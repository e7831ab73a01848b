#pragma once
// Softmax regression at one W on one batch, in closed form. Both problems on it have the shape
//
//     g(W) = sum_i a_i CE_i(W) + 1/2 sum_jk d_j W_jk^2
//
// with CE_i the cross entropy of example i, a_i its weight and d_j a ridge for each feature or one for all.
// With p_i the probabilities, y_i the label's unit vector and X the batch's rows,
//
//     dCE_i/dW  = x_i (p_i - y_i)',        d2CE_i/dW2 : V  = x_i ((diag(p_i) - p_i p_i') V'x_i)'
//
// What x does to a and d, and so the cross products, is the problems' business.

#include <cstdint>
#include <memory>
#include <utility>

#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"

namespace bilevel {

// How the flat w holds W: feature by feature, or class by class.
struct WeightLayout {
  int64_t classes = 0, features = 0;
  bool by_feature = false;
  int64_t size() const { return classes * features; }
  Tensor matrix(const Tensor& w) const;  // features x classes, a view
};

struct SoftmaxTerms {
  const FeatureMatrix& data;  // must outlive the point
  Tensor index;               // the batch's rows, checked; undefined = all
  Tensor labels;              // int64, of the batch
  Tensor weights;             // a, of the batch
  Tensor ridge;               // d: one element, or one per feature; undefined = none
};

class SoftmaxPoint {
 public:
  virtual ~SoftmaxPoint() = default;
  virtual Tensor gradient() = 0;                // dg/dW, flat
  virtual Tensor hessian(const Tensor& v) = 0;  // flat
  virtual Tensor cross_entropies() = 0;         // CE_i
  virtual Tensor slopes(const Tensor& v) = 0;   // <dCE_i/dW, V>
  virtual std::pair<Tensor, Tensor> hessian_and_slopes(const Tensor& v) = 0;
  virtual Tensor pullback(const Tensor& u) = 0;  // sum_i u_i dCE_i/dW, flat
  virtual std::pair<Tensor, Tensor> gradient_and_cross_entropies() = 0;
};

// `several` = more than one product will be asked for: the probabilities are kept from the first on.
// Throws std::invalid_argument where w has another size or type than the layout and the data.
std::unique_ptr<SoftmaxPoint> make_softmax_point(const SoftmaxTerms& terms, const WeightLayout& layout,
                                                 const Tensor& w, bool several);

}  // namespace bilevel
