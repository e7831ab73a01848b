#pragma once
// What the fits of a table's job cost, and how many ended too early.

#include <cstdint>

namespace bilevel {

struct FitCounts {
  int64_t fits = 0, gradients = 0, hessian_products = 0;
  int64_t unconverged = 0;  // fits that ended before their tolerance
  int64_t unsolved = 0;     // linear systems of derivatives that did
  void add(const FitCounts& more) {
    fits += more.fits;
    gradients += more.gradients;
    hessian_products += more.hessian_products;
    unconverged += more.unconverged;
    unsolved += more.unsolved;
  }
};

}  // namespace bilevel
