#include "bilevel/core/finite.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace bilevel {

bool all_finite(const Tensor& t) {
  return std::isfinite(t.sum().item<double>()) || at::isfinite(t).all().item<bool>();
}

bool finite_number(const Tensor& scalar) { return std::isfinite(scalar.item<double>()); }

bool FiniteChecks::puts_off(const Tensor& t) const {
  return put_off_ == PutOff::everything || (put_off_ == PutOff::on_gpus && t.is_cuda());
}

void FiniteChecks::remember(const Tensor& finite) {
  finite_ = finite_.defined() ? finite_.logical_and(finite) : finite;
}

bool FiniteChecks::all_finite(const Tensor& t) {
  if (!puts_off(t)) return bilevel::all_finite(t);
  remember(at::isfinite(t.sum()));
  return true;
}

bool FiniteChecks::finite_number(const Tensor& scalar) {
  if (!puts_off(scalar)) return bilevel::finite_number(scalar);
  remember(at::isfinite(scalar));
  return true;
}

NoWaiting::NoWaiting(FiniteChecks& checks, bool on_cpu_too)
    : checks_(checks),
      before_(std::exchange(checks.put_off_,
                            on_cpu_too ? FiniteChecks::PutOff::everything : FiniteChecks::PutOff::on_gpus)) {}
NoWaiting::~NoWaiting() { checks_.put_off_ = before_; }

bool NoWaiting::all_finite_so_far() {
  const Tensor asked = std::exchange(checks_.finite_, Tensor());
  return !asked.defined() || asked.item<bool>();
}

}  // namespace bilevel
