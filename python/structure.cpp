#include "python/structure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace bilevel::python {
namespace {

const Tensor& tensor_of(const py::handle& value, const std::string& name) {
  if (!THPVariable_Check(value.ptr())) {
    throw py::type_error(fmt::format("{} must be a torch.Tensor, or a list or dict of them, not {}", name,
                                     Py_TYPE(value.ptr())->tp_name));
  }
  const Tensor& tensor = THPVariable_Unpack(value.ptr());
  if (tensor.layout() != at::kStrided) {
    throw py::value_error(fmt::format("{} is sparse: give a dense tensor", name));
  }
  return tensor;
}

std::string part(const std::string& name, const py::handle& key) {
  return fmt::format("{}[{}]", name, py::repr(key).cast<std::string>());
}

using Named = std::vector<std::pair<std::string, Tensor>>;

// The tensors of a list or dict, with what errors call them.
Named parts_of(const py::handle& value, const std::string& name) {
  Named all;
  if (PyDict_Check(value.ptr())) {
    for (const auto& [key, one] : py::reinterpret_borrow<py::dict>(value)) {
      all.emplace_back(py::str(key).cast<std::string>(), tensor_of(one, part(name, key)));
    }
    return all;
  }
  int64_t i = 0;
  for (const py::handle& one : py::reinterpret_borrow<py::sequence>(value)) {
    const py::int_ key(i);
    all.emplace_back(std::to_string(i++), tensor_of(one, part(name, key)));
  }
  return all;
}

}  // namespace

Structure Structure::of(const py::handle& value, const std::string& name) {
  Structure s;
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr()) && !PyDict_Check(value.ptr())) {
    const Tensor& tensor = tensor_of(value, name);
    if (tensor.dim() == 1) return s;
    s.kind_ = Kind::tensor;
    s.shape_ = tensor.sizes().vec();
    return s;
  }
  s.kind_ = PyDict_Check(value.ptr()) ? Kind::dict : PyList_Check(value.ptr()) ? Kind::list : Kind::tuple;
  for (const auto& [key, tensor] : parts_of(value, name)) s.layout_.add(key, tensor.sizes().vec());
  if (s.layout_.entries().empty()) throw py::value_error(fmt::format("{} is empty", name));
  return s;
}

Tensor Structure::flatten(const py::handle& value, const std::string& name) const {
  if (kind_ == Kind::flat || kind_ == Kind::tensor) {
    const Tensor& tensor = tensor_of(value, name);
    const bool fits = kind_ == Kind::flat ? tensor.dim() == 1 : tensor.sizes().equals(shape_);
    if (!fits) {
      throw py::value_error(fmt::format(
          "{} has shape {}, but the problem's has {}", name,
          py::str(py::cast(tensor).attr("shape")).cast<std::string>(),
          kind_ == Kind::flat ? std::string("one dimension") : fmt::format("{}", fmt::join(shape_, " x "))));
    }
    return tensor.detach().reshape({-1});
  }
  std::vector<Tensor> tensors;
  for (const auto& [key, tensor] : parts_of(value, name)) tensors.push_back(tensor.detach());
  return layout_.flatten(tensors);
}

py::object Structure::shown(const Tensor& flat) const {
  if (!flat.defined()) return py::none();
  if (kind_ == Kind::flat) return py::cast(flat);
  if (kind_ == Kind::tensor) return py::cast(flat.view(shape_));
  const std::vector<Tensor> tensors = layout_.split(flat);
  if (kind_ == Kind::dict) {
    py::dict all;
    for (size_t i = 0; i < tensors.size(); ++i)
      all[py::str(layout_.entries()[i].name)] = py::cast(tensors[i]);
    return all;
  }
  py::list all;
  for (const Tensor& one : tensors) all.append(py::cast(one));
  if (kind_ == Kind::tuple) return py::tuple(all);
  return all;
}

}  // namespace bilevel::python
