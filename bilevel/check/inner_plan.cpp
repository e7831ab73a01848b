#include "bilevel/check/inner_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bilevel {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr double worthwhile = 0.5;  // of the steps: what another optimiser must save

// The larger root's size of z^2 - trace z + determinant, the characteristic polynomial of a momentum step.
double root_radius(double trace, double determinant) {
  const double discriminant = trace * trace - 4 * determinant;
  if (discriminant < 0) return std::sqrt(determinant);
  return (std::abs(trace) + std::sqrt(discriminant)) / 2;
}

double radius_at(const InnerOptions& o, double curvature) {
  const double shrink = 1 - o.rate * curvature;
  if (o.optimizer == "gd") return std::abs(shrink);
  if (o.optimizer == "heavy-ball") return root_radius(o.momentum + shrink, o.momentum);
  return root_radius((1 + o.momentum) * shrink, o.momentum * shrink);  // core/inner.cpp's Nesterov
}

double rounded_down(double value, int digits) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - digits + 1);
  return std::floor(value / unit * (1 + 1e-12)) * unit;
}

}  // namespace

double step_contraction(const InnerOptions& options, double smallest, double largest) {
  if (options.optimizer == "adam") return none;
  return std::max(radius_at(options, smallest), radius_at(options, largest));
}

double best_inner_rate(const InnerOptions& options, double smallest, double largest) {
  if (options.optimizer == "adam" || !(largest > 0)) return none;
  if (options.optimizer == "gd") return 2 / (largest + std::max(smallest, 0.0));
  const double safe = make_inner_optimizer(options)->largest_safe_rate(largest);
  InnerOptions at = options;
  double best = 0, least = std::numeric_limits<double>::infinity();
  constexpr int points = 600;  // 1.2 % apart
  for (int i = 0; i < points; ++i) {
    at.rate = safe * std::pow(1e-3, static_cast<double>(i) / points);
    const double contraction = step_contraction(at, smallest, largest);
    if (contraction < least) {
      least = contraction;
      best = at.rate;
    }
  }
  return best;
}

InnerOptions plan_inner(InnerOptions options, const InnerGiven& given, double smallest, double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return options;
  if (!given.optimizer) options.optimizer = "gd";
  if (!given.rate && options.optimizer != "adam") options.rate = rounded_down(1 / largest, 3);
  if (!(smallest > 0) || options.optimizer == "adam") return options;
  const double root = std::min(std::sqrt(options.rate * smallest), 1.0);
  const double momentum = std::floor((1 - root) / (1 + root) * 1000) / 1000;
  if (!given.optimizer) {
    InnerOptions nesterov = options;
    nesterov.optimizer = "nesterov";
    if (!given.momentum) nesterov.momentum = momentum;
    const double plain = step_contraction(options, smallest, largest);
    const double accelerated = step_contraction(nesterov, smallest, largest);
    if (accelerated < 1 && !(std::log(plain) < worthwhile * std::log(accelerated))) return nesterov;
  } else if (options.optimizer != "gd" && !given.momentum) {
    options.momentum = momentum;
  }
  return options;
}

int64_t steps_to_shrink(double contraction, double factor) {
  if (factor >= 1) return 0;
  if (contraction <= 0) return 1;
  constexpr double most = 1e15;
  const double steps = contraction < 1 ? std::ceil(std::log(factor) / std::log(contraction)) : most;
  return steps >= most ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(steps);
}

}  // namespace bilevel
