#pragma once
// What the solvers on a matrix-vector product share: checks that name what is wrong, and numbers read from
// the device as rarely as possible. Internal to core/.

#include <cstdint>
#include <string_view>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/tensor.h"

namespace bilevel::detail {

// Throws std::invalid_argument with the solver's name.
void require_float_or_double(std::string_view solver, std::string_view what, at::ScalarType type);

// The right-hand side without its graph, once it is a 1-d float or double tensor.
Tensor checked_right_hand_side(std::string_view solver, const Tensor& b);
// The warm start without its graph, or an undefined tensor where none was given.
Tensor checked_warm_start(std::string_view solver, const Tensor& warm_start, const Tensor& b);
// What a product returned, without its graph. It may share memory with the product's argument (the identity
// returns it), so it is never written to.
Tensor checked_product(std::string_view solver, const Tensor& product, const Tensor& argument);

double epsilon_of(const Tensor& v);
// |v|, also where the squares leave the range of v's type.
double norm_of(const Tensor& v);
// A power of two near `norm` (1 where it is zero or not finite): dividing by it changes no mantissa, and
// keeps the squares of tiny or huge vectors within the range of a float.
double scale_near(double norm);
// Several 0-dimensional tensors by one transfer.
std::vector<double> read(at::TensorList scalars);

// The end of a solve whose right-hand side is zero (the solution is zero) or not finite (the solution is NaN,
// so that it cannot be mistaken for one). True where `result` has been filled.
bool ends_before_it_begins(const Tensor& b, double b_norm, LinearResult& result);

}  // namespace bilevel::detail
