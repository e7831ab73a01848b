#pragma once
// The problems that the program knows by name, with inner steps and a rate that solve their inner problem
// where it is convex. Adding a problem is one file and one row in registry.cpp.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/problem.h"

namespace bilevel {

struct ProblemOptions {
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device of everything
  uint64_t seed = 0;                                                   // of the synthetic data
  double regularization = -1;                                          // negative = the problem's own default
  // Files of a user's own (hyper-cleaning): features as .npy matrices, labels as .npy vectors of integers.
  std::string train_features = {}, train_labels = {}, valid_features = {}, valid_labels = {};
  double weight_decay = 0;  // adds weight_decay/2 |w|^2 to the inner loss of any problem
  bool bias = false;        // append a column of ones, whose weights are regularised like the rest
};

// What `bilevel check` does on a problem by default.
struct CheckDefaults {
  std::string curvature = "hessian";  // of the implicit estimators and of their reference
  double damping = 0;
  bool linear_rate_auto = false;  // 1 / the largest curvature in place of the inner rate
  bool solvable = true;           // Newton's method solves the inner problem; else no one can say where w* is
};

struct NamedProblem {
  std::string name;
  std::unique_ptr<Problem> problem;
  int64_t inner_steps = 100;
  double inner_rate = 0.1;
  double outer_rate = 0.05;         // of Adam, whose steps have the same size on every problem
  bool convex = false;              // the inner problem has one solution
  bool constant_curvature = false;  // H and C do not depend on w
  CheckDefaults check = {};
  // Of H at every w and every x that project_outer_ allows, for problems whose x adds much; 0 = not known.
  double largest_curvature = 0;
  std::string digest = {};  // of examples that were read from files, where they are at hand
};

struct ProblemRow {
  std::string name;
  std::string summary;  // one line for help texts
};
const std::vector<ProblemRow>& problem_rows();
// Throws std::invalid_argument with the list of names when `name` is unknown.
NamedProblem make_problem(const std::string& name, const ProblemOptions& options = {});

}  // namespace bilevel
