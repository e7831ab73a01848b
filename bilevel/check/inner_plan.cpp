#include "bilevel/check/inner_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

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

// The number that these digits say when they are typed.
double as_typed(double value, int digits) { return std::stod(fmt::format("{:.{}g}", value, digits)); }

double rounded_down(double value, int digits) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - digits + 1);
  return as_typed(std::floor(value / unit * (1 + 1e-12)) * unit, digits);
}

// Rounded up, by two digits of what is missing to 1: too little momentum leaves a slow real root, too much
// costs next to nothing.
double momentum_for(double rate, double smallest) {
  const double root = std::min(std::sqrt(rate * smallest), 1.0);
  return as_typed(1 - std::max(rounded_down(2 * root / (1 + root), 2), 1e-6), 6);
}

// Nesterov's steps are stable below 2 (1 + beta) / (1 + 2 beta) / L, that is 4 / (3 L) whatever beta is.
double nesterov_rate(double rate, double farthest) {
  return std::min(rate, rounded_down(4 / (3 * farthest), 3));
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

InnerOptions plan_inner(InnerOptions options, const InnerGiven& given, double smallest, double largest,
                        double farthest) {
  if (!(largest > 0) || !std::isfinite(largest)) return options;
  if (!given.optimizer) options.optimizer = "gd";
  farthest = std::max(farthest, largest);
  if (!given.rate && options.optimizer != "adam") {
    options.rate = rounded_down(std::min(1 / largest, 2 / farthest), 3);
  }
  if (!(smallest > 0) || options.optimizer == "adam") return options;
  if (!given.optimizer) {
    InnerOptions nesterov = options;
    nesterov.optimizer = "nesterov";
    if (!given.rate) nesterov.rate = nesterov_rate(options.rate, farthest);
    if (!given.momentum) nesterov.momentum = momentum_for(nesterov.rate, smallest);
    if (nesterov.momentum == 0) return options;  // one step of gradient descent is all it takes
    if (nesterov.rate >= make_inner_optimizer(nesterov)->largest_safe_rate(farthest)) return options;
    const double plain = step_contraction(options, smallest, largest);
    const double accelerated = step_contraction(nesterov, smallest, largest);
    if (accelerated < 1 && !(std::log(plain) < worthwhile * std::log(accelerated))) return nesterov;
  } else if (options.optimizer != "gd") {
    if (!given.rate && options.optimizer == "nesterov") options.rate = nesterov_rate(options.rate, farthest);
    if (!given.momentum) options.momentum = momentum_for(options.rate, smallest);
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
