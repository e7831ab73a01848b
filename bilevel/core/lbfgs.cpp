#include "bilevel/core/lbfgs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "bilevel/core/require.h"

namespace bilevel {
namespace {

constexpr double too_steep = 0.8, too_flat = 0.9;  // of the first slope: 1 - 2 delta and sigma, their values
constexpr int64_t most_trials = 60;                // of one line search: 1e-60 of the first length

double product_of(const Tensor& a, const Tensor& b) { return at::dot(a, b).item<double>(); }

class Memory {
 public:
  explicit Memory(int64_t most) : most_(static_cast<size_t>(most)) {}

  // Only pairs of positive curvature: the matrix stays positive definite.
  void add(const Tensor& step, const Tensor& change) {
    const double product = product_of(step, change), square = product_of(change, change);
    if (!(product > 1e-14 * std::sqrt(product_of(step, step) * square))) return;
    pairs_.push_back({step, change, product});
    scale_ = product / square;
    if (pairs_.size() > most_) pairs_.pop_front();
  }
  bool empty() const { return pairs_.empty(); }
  void clear() { pairs_.clear(); }

  // The two loops: minus the approximate inverse Hessian times the gradient.
  Tensor direction(const Tensor& gradient) const {
    Tensor q = gradient.neg();
    std::vector<double> weights(pairs_.size());
    for (size_t i = pairs_.size(); i-- > 0;) {
      weights[i] = product_of(pairs_[i].step, q) / pairs_[i].product;
      q = at::sub(q, pairs_[i].change, weights[i]);
    }
    q = q * scale_;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      q = at::add(q, pairs_[i].step, weights[i] - product_of(pairs_[i].change, q) / pairs_[i].product);
    }
    return q;
  }

 private:
  struct Pair {
    Tensor step, change;
    double product;
  };
  size_t most_;
  std::deque<Pair> pairs_;
  double scale_ = 1;
};

struct Accepted {
  Tensor w, gradient;  // undefined = no step was
};

}  // namespace

void LbfgsOptions::validate() const {
  for (const auto& [option, value] :
       {std::pair{"tolerance", tolerance}, std::pair{"relative_tolerance", relative_tolerance}}) {
    require_nonnegative("lbfgs", option, value);
  }
  require_positive("lbfgs: first_step", first_step);
  require_at_least("lbfgs", "most_gradients", most_gradients, 1);
  require_at_least("lbfgs", "memory", memory, 1);
}

LbfgsResult minimize(const std::function<Tensor(const Tensor& w)>& gradient_at, const Tensor& start,
                     const LbfgsOptions& options) {
  options.validate();
  LbfgsResult result;
  const auto gradient_of = [&](const Tensor& w) {
    ++result.gradients;
    return gradient_at(w);
  };
  Tensor w = start, gradient = gradient_of(w);
  result.w = w;
  result.gradient_norm = gradient.norm().item<double>();
  if (!std::isfinite(result.gradient_norm)) {
    result.status = Status::not_finite;
    return result;
  }

  const double epsilon = start.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                           : std::numeric_limits<double>::epsilon();
  const double tolerance = std::max(options.tolerance, options.relative_tolerance * result.gradient_norm);

  // Slopes along the direction: brackets a length where the slope is neither as steep as at the start nor
  // steep upwards, by secants that are kept inside the bracket.
  const auto search = [&](const Tensor& direction, double first_slope) {
    double low = 0, low_slope = first_slope;
    double high = std::numeric_limits<double>::infinity(), high_slope = 0, length = 1;
    for (int64_t trial = 0; trial < most_trials && result.gradients < options.most_gradients; ++trial) {
      const Tensor there = at::add(w, direction, length);
      const Tensor gradient_there = gradient_of(there);
      const double slope = product_of(gradient_there, direction);
      if (std::isfinite(slope) && slope >= too_flat * first_slope && slope <= -too_steep * first_slope) {
        return Accepted{there, gradient_there};
      }
      const double before = length;
      if (std::isfinite(slope) && slope < 0) {
        low = length;
        low_slope = slope;
      } else {
        high = length;
        high_slope = slope;
      }
      if (std::isinf(high)) {
        const double secant = low_slope > first_slope ? low * first_slope / (first_slope - low_slope) : 0;
        length = std::clamp(secant, 2 * low, 10 * low);
      } else if (!std::isfinite(high_slope)) {
        length = low + 0.1 * (high - low);
      } else {
        const double share = std::clamp(low_slope / (low_slope - high_slope), 0.1, 0.9);
        length = low + share * (high - low);
      }
      if (!std::isfinite(length) || length == before) break;
    }
    return Accepted{};
  };

  Memory memory(options.memory);
  int64_t since_best = 0, lost_in_rounding = 0;
  result.status = Status::max_iterations;
  while (result.gradient_norm > tolerance && result.gradients < options.most_gradients) {
    Tensor direction = memory.empty() ? -options.first_step * gradient : memory.direction(gradient);
    double slope = product_of(gradient, direction);
    if (!memory.empty() && !(slope < 0)) {
      memory.clear();
      direction = -options.first_step * gradient;
      slope = product_of(gradient, direction);
    }
    const Accepted next = slope < 0 ? search(direction, slope) : Accepted{};
    if (!next.w.defined()) {
      if (result.gradients >= options.most_gradients) break;
      if (memory.empty()) {
        result.status = Status::breakdown;
        break;
      }
      memory.clear();  // the plain gradient once more, before it gives up
      continue;
    }
    const Tensor step = next.w - w;
    // Steps of the size of w's last digits: what is left of the gradient is rounding.
    const double last_digits = 4 * epsilon * w.norm().item<double>();
    lost_in_rounding = step.norm().item<double>() <= last_digits ? lost_in_rounding + 1 : 0;
    memory.add(step, next.gradient - gradient);
    w = next.w;
    gradient = next.gradient;
    // The gradient of an ill-conditioned problem does not fall with every step, and at rounding it never
    // does.
    ++since_best;
    if (const double norm = gradient.norm().item<double>(); norm < result.gradient_norm) {
      result.w = w;
      result.gradient_norm = norm;
      since_best = 0;
    }
    if (since_best >= 50 + result.gradients / 4 || lost_in_rounding >= 10) {
      result.status = Status::breakdown;
      break;
    }
  }
  if (result.gradient_norm <= tolerance) result.status = Status::converged;
  return result;
}

}  // namespace bilevel
