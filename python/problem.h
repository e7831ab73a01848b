#pragma once
// A problem made of two Python functions. The losses are theirs, and so is the graph that they leave in
// PyTorch's autograd; derivatives are taken by the library, which counts them. The interpreter's lock is held
// during a call and at no other time.

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bilevel/core/problem.h"
#include "bilevel/problems/registry.h"
#include "python/structure.h"

namespace bilevel::python {

// One of the two losses, as its user gave it.
struct PythonLoss {
  py::object function;
  std::string name;          // "inner (my_loss, train.py:12)"
  bool takes_batch = false;  // a third argument: the batch, or the data of the batch
  py::object data;           // None; tensors by rows; or a function from a batch to data
  int64_t samples = 1;
};

// What bilevel.Problem holds.
struct PythonProblemParts {
  PythonLoss inner, outer;
  py::object metrics, project;  // None, or functions
  bool inner_uses_outer = true;
};

class PythonProblem : public Problem {
 public:
  PythonProblem(std::shared_ptr<const PythonProblemParts> parts, Structure x_structure, Structure w_structure,
                Tensor x, Tensor w)
      : parts_(std::move(parts)),
        x_structure_(std::move(x_structure)),
        w_structure_(std::move(w_structure)),
        x_(std::move(x)),
        w_(std::move(w)) {}

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return parts_->inner.samples; }
  int64_t outer_samples() const override { return parts_->outer.samples; }
  bool inner_loss_uses_outer() const override { return parts_->inner_uses_outer; }
  void project_outer_(Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  const Structure& x_structure() const { return x_structure_; }
  const Structure& w_structure() const { return w_structure_; }

 private:
  Tensor call(const PythonLoss& loss, const Tensor& w, const Tensor& x, const Batch& batch) const;

  std::shared_ptr<const PythonProblemParts> parts_;
  Structure x_structure_, w_structure_;
  Tensor x_, w_;
};

// A problem and the point that a function was called with.
struct PointedProblem {
  std::shared_ptr<const Problem> problem;
  Structure x_structure, w_structure;
  Tensor x, w;
};
// `problem` is a bilevel.Problem's parts or a problem known by name; x and w are the user's, or None for the
// problem's start.
PointedProblem pointed(const py::object& problem, const py::object& x, const py::object& w);

// Adds a line to the exception that Python has raised: where in the library it came from.
void add_note(const py::error_already_set& error, const std::string& note);

py::object batch_to_python(const Batch& batch);

}  // namespace bilevel::python
