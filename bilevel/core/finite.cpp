#include "bilevel/core/finite.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace bilevel {
namespace {

thread_local NoWaiting* innermost = nullptr;

}  // namespace

NoWaiting::NoWaiting() : outside_(std::exchange(innermost, this)) {}
NoWaiting::~NoWaiting() { innermost = outside_; }

bool NoWaiting::applies_to(const Tensor& t) { return innermost != nullptr && t.is_cuda(); }

void NoWaiting::remember(const Tensor& finite) {
  Tensor& all = innermost->finite_;
  all = all.defined() ? all.logical_and(finite) : finite;
}

bool NoWaiting::all_finite_so_far() {
  const Tensor asked = std::exchange(finite_, Tensor());
  return !asked.defined() || asked.item<bool>();
}

bool all_finite(const Tensor& t) {
  if (NoWaiting::applies_to(t)) {
    NoWaiting::remember(at::isfinite(t.sum()));
    return true;
  }
  return std::isfinite(t.sum().item<double>()) || at::isfinite(t).all().item<bool>();
}

bool finite_number(const Tensor& scalar) {
  if (NoWaiting::applies_to(scalar)) {
    NoWaiting::remember(at::isfinite(scalar));
    return true;
  }
  return std::isfinite(scalar.item<double>());
}

}  // namespace bilevel
