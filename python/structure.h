#pragma once
// How a flat vector of the library looks to a user's functions: as it is, as a tensor of another shape, or as
// a list, a tuple or a dict of tensors.

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/core/tensor.h"

namespace bilevel::python {

namespace py = pybind11;

class Structure {
 public:
  Structure() = default;  // flat
  // Of a user's value; `name` is what it is called in errors. Throws TypeError for anything else.
  static Structure of(const py::handle& value, const char* name);

  // The value as one vector: the user's own memory where it is one contiguous tensor. Parts of a dict are
  // matched by their keys, in any order. Throws ValueError where it has not this structure.
  Tensor flatten(const py::handle& value, const char* name) const;
  py::object shown(const Tensor& flat) const;  // views; undefined = None

 private:
  enum class Kind { flat, tensor, list, tuple, dict };
  struct Keys {
    std::vector<py::object> all;
  };
  // In this structure's order, with the keys that errors name.
  std::vector<std::pair<py::object, Tensor>> parts_of(const py::handle& value, const char* name) const;

  Kind kind_ = Kind::flat;
  std::vector<int64_t> shape_;
  Layout layout_;
  std::shared_ptr<const Keys> keys_;  // of a dict, one for each entry of layout_
};

}  // namespace bilevel::python
