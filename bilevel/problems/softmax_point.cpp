#include "bilevel/problems/softmax_point.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bilevel/problems/softmax_kernels.h"
#include "bilevel/problems/softmax_sweep.h"
#include "bilevel/problems/softmax_tables.h"

namespace bilevel {
namespace {

using softmax::Kernels;
using softmax::ScaledTable;
using softmax::Sweep;

template <class T>
const T* data_or_null(const Tensor& t) {
  return t.defined() ? t.data_ptr<T>() : nullptr;
}

template <class T>
class PointOf : public SoftmaxPoint {
 public:
  PointOf(const SoftmaxTerms& terms, const WeightLayout& layout, const Tensor& w, bool several)
      : terms_(terms),
        layout_(layout),
        order_(softmax::table_for(terms.data)),
        stride_(softmax::stride_for(layout.classes)),
        kernel_(softmax::kernels<T>(stride_)),
        several_(several),
        count_(terms.labels.numel()),
        w_(softmax::pack(checked(w, "w"), layout, order_)) {}

  Tensor gradient() override { return first_order(true, false, terms_.weights, true).first; }
  Tensor cross_entropies() override { return first_order(false, true, {}, false).second; }
  std::pair<Tensor, Tensor> gradient_and_cross_entropies() override {
    return first_order(true, true, terms_.weights, true);
  }
  Tensor pullback(const Tensor& u) override { return first_order(true, false, u.contiguous(), false).first; }

  Tensor hessian(const Tensor& v) override { return second_order(v, true, false).first; }
  Tensor slopes(const Tensor& v) override { return second_order(v, false, true).second; }
  std::pair<Tensor, Tensor> hessian_and_slopes(const Tensor& v) override {
    return second_order(v, true, true);
  }

 private:
  const Tensor& checked(const Tensor& flat, const char* name) const {
    const at::ScalarType dtype = terms_.data.dtype();
    if (!flat.defined() || flat.dim() != 1 || flat.numel() != layout_.size() || flat.scalar_type() != dtype ||
        !flat.device().is_cpu()) {
      throw std::invalid_argument(fmt::format(
          "{} must be a vector of {} x {} = {} numbers of {} on the CPU, but {}", name, layout_.classes,
          layout_.features, layout_.size(), c10::toString(dtype),
          flat.defined() ? fmt::format("has {} dimensions, {} elements of {} on {}", flat.dim(), flat.numel(),
                                       c10::toString(flat.scalar_type()), flat.device().str())
                         : std::string("is undefined")));
    }
    return flat;
  }

  Sweep<T> begin_sweep() const {
    return {.data = terms_.data,
            .index = data_or_null<int64_t>(terms_.index),
            .count = count_,
            .classes = layout_.classes};
  }

  ScaledTable<T> ridge_times(const Tensor& table) const {
    if (!terms_.ridge.defined()) return {};
    return {table.data_ptr<T>(), terms_.ridge.data_ptr<T>(), terms_.ridge.numel() == 1 ? 0 : 1};
  }

  Tensor per_example() const { return at::empty({count_}, w_.options()); }

  // The probabilities of a block: kept ones, or made from the logits and kept if several products follow.
  const T* probabilities(int64_t first, int64_t rows, T* logits, T* cross_entropies) {
    T* kept = kept_.defined() ? kept_.data_ptr<T>() + first * stride_ : nullptr;
    if (ready_) return kept;
    kernel_.softmax(rows, layout_.classes, stride_, labels() + first, logits, cross_entropies);
    if (kept == nullptr) return logits;
    std::copy(logits, logits + rows * stride_, kept);
    return kept;
  }
  const int64_t* labels() const { return terms_.labels.data_ptr<int64_t>(); }

  void run(const Sweep<T>& sweep) {
    if (several_ && !kept_.defined()) kept_ = at::empty({count_ * stride_}, w_.options());
    softmax::run(sweep);
    ready_ = kept_.defined();
  }

  std::pair<Tensor, Tensor> first_order(bool with_sum, bool with_losses, const Tensor& weights, bool ridge) {
    Tensor sum, losses;
    Sweep<T> sweep = begin_sweep();
    if (with_losses) {
      losses = per_example();
      ready_ = false;  // cross entropies come with the probabilities
    }
    if (!ready_) sweep.tables[0] = w_.data_ptr<T>();
    if (with_sum) {
      sum = softmax::empty_table(layout_, order_, w_.options());
      sweep.sum = sum.data_ptr<T>();
      if (ridge) sweep.start = ridge_times(w_);
    }
    T* const loss = with_losses ? losses.data_ptr<T>() : nullptr;
    const T* const weight = data_or_null<T>(weights);
    sweep.block = [&](int64_t first, int64_t rows, T* logits, T*, T* factors) {
      const T* p = probabilities(first, rows, logits, loss == nullptr ? nullptr : loss + first);
      if (with_sum) kernel_.residuals(rows, stride_, labels() + first, weight + first, p, factors);
    };
    run(sweep);
    return {with_sum ? softmax::unpack(sum, layout_, order_) : Tensor(), losses};
  }

  std::pair<Tensor, Tensor> second_order(const Tensor& v, bool with_sum, bool with_slopes) {
    const Tensor direction = softmax::pack(checked(v, "the vector of a product"), layout_, order_);
    Tensor sum, slopes;
    Sweep<T> sweep = begin_sweep();
    sweep.tables[0] = direction.data_ptr<T>();
    if (!ready_) sweep.tables[1] = w_.data_ptr<T>();
    if (with_sum) {
      sum = softmax::empty_table(layout_, order_, w_.options());
      sweep.sum = sum.data_ptr<T>();
      sweep.start = ridge_times(direction);
    }
    if (with_slopes) slopes = per_example();
    T* const slope = with_slopes ? slopes.data_ptr<T>() : nullptr;
    const T* const weight = terms_.weights.data_ptr<T>();
    sweep.block = [&](int64_t first, int64_t rows, T* along, T* logits, T* factors) {
      const T* p = probabilities(first, rows, logits, nullptr);
      kernel_.curvature(rows, stride_, labels() + first, weight + first, p, along,
                        slope == nullptr ? nullptr : slope + first, with_sum ? factors : nullptr);
    };
    run(sweep);
    return {with_sum ? softmax::unpack(sum, layout_, order_) : Tensor(), slopes};
  }

  SoftmaxTerms terms_;
  WeightLayout layout_;
  softmax::Table order_;
  int64_t stride_;  // of what has a row per example
  const Kernels<T>& kernel_;
  bool several_;
  int64_t count_;
  Tensor w_;     // the packed table
  Tensor kept_;  // probabilities, examples x stride
  bool ready_ = false;
};

}  // namespace

Tensor WeightLayout::matrix(const Tensor& w) const {
  return by_feature ? w.view({features, classes}) : w.view({classes, features}).t();
}

std::unique_ptr<SoftmaxPoint> make_softmax_point(const SoftmaxTerms& terms, const WeightLayout& layout,
                                                 const Tensor& w, bool several) {
  if (terms.data.dtype() == at::kFloat) return std::make_unique<PointOf<float>>(terms, layout, w, several);
  return std::make_unique<PointOf<double>>(terms, layout, w, several);
}

}  // namespace bilevel
