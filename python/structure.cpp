#include "python/structure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "python/held.h"

namespace bilevel::python {
namespace {

std::string part(const char* name, const py::handle& key) {
  return key ? fmt::format("{}[{}]", name, py::repr(key).cast<std::string>()) : name;
}

// A part of `name` where there is a key. Texts are made for errors alone: a small problem has no time for
// them.
const Tensor& tensor_of(const py::handle& value, const char* name, const py::handle& key = {}) {
  if (!THPVariable_Check(value.ptr())) {
    throw py::type_error(fmt::format("{} must be a torch.Tensor, or a list or dict of them, not {}",
                                     part(name, key), Py_TYPE(value.ptr())->tp_name));
  }
  const Tensor& tensor = THPVariable_Unpack(value.ptr());
  if (tensor.layout() != at::kStrided) {
    throw py::value_error(fmt::format("{} is sparse: give a dense tensor", part(name, key)));
  }
  return tensor;
}

std::string shown_shape(at::IntArrayRef shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

}  // namespace

Structure Structure::of(const py::handle& value, const char* name) {
  Structure s;
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr()) && !PyDict_Check(value.ptr())) {
    const Tensor& tensor = tensor_of(value, name);
    if (tensor.dim() == 1) return s;
    s.kind_ = Kind::tensor;
    s.shape_ = tensor.sizes().vec();
    return s;
  }
  if (PyDict_Check(value.ptr())) {
    s.kind_ = Kind::dict;
    Keys keys;
    for (const auto& [key, one] : py::reinterpret_borrow<py::dict>(value)) {
      s.layout_.add(fmt::format("{}", keys.all.size()), tensor_of(one, name, key).sizes().vec());
      keys.all.push_back(py::reinterpret_borrow<py::object>(key));
    }
    s.keys_ = held(std::move(keys));
  } else {
    s.kind_ = PyList_Check(value.ptr()) ? Kind::list : Kind::tuple;
    int64_t i = 0;
    for (const py::handle& one : py::reinterpret_borrow<py::sequence>(value)) {
      s.layout_.add(fmt::format("{}", i), tensor_of(one, name, py::int_(i)).sizes().vec());
      ++i;
    }
  }
  if (s.layout_.entries().empty()) throw py::value_error(fmt::format("{} is empty", name));
  return s;
}

std::vector<std::pair<py::object, Tensor>> Structure::parts_of(const py::handle& value,
                                                               const char* name) const {
  std::vector<std::pair<py::object, Tensor>> parts;
  if (kind_ == Kind::dict) {
    if (!PyDict_Check(value.ptr())) {
      throw py::type_error(
          fmt::format("{} must be a dict of tensors, not {}", name, Py_TYPE(value.ptr())->tp_name));
    }
    const auto given = py::reinterpret_borrow<py::dict>(value);
    for (const py::object& key : keys_->all) {
      if (!given.contains(key)) throw py::value_error(fmt::format("{} is missing", part(name, key)));
      parts.emplace_back(key, tensor_of(given[key], name, key));
    }
    if (given.size() > parts.size()) {
      for (const auto& [key, one] : given) {
        const auto is_this = [&](const py::object& known) { return known.equal(key); };
        if (std::none_of(keys_->all.begin(), keys_->all.end(), is_this)) {
          throw py::value_error(
              fmt::format("{} is unknown: the problem has no such tensor", part(name, key)));
        }
      }
    }
    return parts;
  }
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    throw py::type_error(
        fmt::format("{} must be a list or tuple of tensors, not {}", name, Py_TYPE(value.ptr())->tp_name));
  }
  for (const py::handle& one : py::reinterpret_borrow<py::sequence>(value)) {
    py::int_ key(parts.size());
    const Tensor& tensor = tensor_of(one, name, key);
    parts.emplace_back(std::move(key), tensor);
  }
  if (parts.size() != layout_.entries().size()) {
    throw py::value_error(fmt::format("{} has {} tensors, but the problem's has {}", name, parts.size(),
                                      layout_.entries().size()));
  }
  return parts;
}

Tensor Structure::flatten(const py::handle& value, const char* name) const {
  if (kind_ == Kind::flat || kind_ == Kind::tensor) {
    const Tensor& tensor = tensor_of(value, name);
    const bool fits = kind_ == Kind::flat ? tensor.dim() == 1 : tensor.sizes().equals(shape_);
    if (!fits) {
      throw py::value_error(fmt::format("{} has shape {}, but the problem's has {}", name,
                                        shown_shape(tensor.sizes()),
                                        kind_ == Kind::flat ? "one dimension" : shown_shape(shape_)));
    }
    return kind_ == Kind::flat ? tensor.detach() : tensor.detach().reshape({-1});
  }
  std::vector<Tensor> tensors;
  for (const auto& [key, tensor] : parts_of(value, name)) {
    const std::vector<int64_t>& shape = layout_.entries()[tensors.size()].shape;
    if (!tensor.sizes().equals(shape)) {
      throw py::value_error(fmt::format("{} has shape {}, but the problem's has {}", part(name, key),
                                        shown_shape(tensor.sizes()), shown_shape(shape)));
    }
    tensors.push_back(tensor.detach());
  }
  return layout_.flatten(tensors);
}

py::object Structure::shown(const Tensor& flat) const {
  if (!flat.defined()) return py::none();
  if (kind_ == Kind::flat) return py::cast(flat);
  if (kind_ == Kind::tensor) return py::cast(flat.view(shape_));
  const std::vector<Tensor> tensors = layout_.split(flat);
  if (kind_ == Kind::dict) {
    py::dict all;
    for (size_t i = 0; i < tensors.size(); ++i) all[keys_->all[i]] = py::cast(tensors[i]);
    return all;
  }
  if (kind_ == Kind::tuple) {
    py::tuple all(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) all[i] = py::cast(tensors[i]);
    return all;
  }
  py::list all(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) all[i] = py::cast(tensors[i]);
  return all;
}

}  // namespace bilevel::python
