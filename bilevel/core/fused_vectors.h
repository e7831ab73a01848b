#pragma once
// What a step of a solver does to its vectors, in as few passes over memory as it can be done: at a million
// unknowns a pass takes longer than its arithmetic. Internal to core/.
//
// For vectors that `fusible` accepts: contiguous, on the CPU, of one type. Sums go by pieces of fixed length
// which are added in order in double: the same bits for any number of threads.

#include <array>
#include <functional>
#include <initializer_list>

#include "bilevel/core/tensor.h"

namespace bilevel::detail {

bool fusible(std::initializer_list<std::reference_wrapper<const Tensor>> vectors);

// d'q with q = product + damping d.
double damped_dot(const Tensor& d, const Tensor& product, double damping);
// r -= step q with q as above; returns r'r.
double subtract_damped(Tensor& r, double step, const Tensor& product, const Tensor& d, double damping);
// x += step d; d = r + ratio d.
void step_and_turn(Tensor& x, double step, Tensor& d, const Tensor& r, double ratio);

// term'product; then term -= rate product; sum += term. Returns {term'product before, term'term after}.
std::array<double, 2> next_term(Tensor& term, const Tensor& product, double rate, Tensor& sum);

// r = b - product, then v += rate r. Returns {v'product, v'v, r'r} of v before.
std::array<double, 3> next_iterate(const Tensor& b, const Tensor& product, double rate, Tensor& v, Tensor& r);

// before = product - beta before; returns v'before.
double lanczos_product(const Tensor& product, double beta, const Tensor& v, Tensor& before);
// next -= alpha v; returns next'next.
double subtract_scaled(Tensor& next, double alpha, const Tensor& v);
// before = a before + b w + c v; x += step before.
void turn_and_step(Tensor& before, double a, const Tensor& w, double b, const Tensor& v, double c, Tensor& x,
                   double step);

}  // namespace bilevel::detail
