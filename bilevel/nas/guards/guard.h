#pragma once
// Guards keep a search from collapsing onto skip connections. Each is a problem around the supernet's, as
// weight decay is, so that it composes with every method that moves alpha, with every space and with the
// engine that computes the supernet's derivatives. Adding one is a file in this folder and a row in
// guard.cpp.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/core/problem.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

class SupernetEngine;
class SupernetProblem;

struct GuardKind {
  std::string name;
  std::string summary;
  std::string quantity;         // what the strength is, for help
  double strength = 0;          // the default
  double largest_strength = 0;  // that has a meaning
  std::string curve;            // what an epoch's number is, for reports
  // How far alpha can go, its rate times its steps, in the search that the default is for; 0 = it is for all.
  double travel = 0;
  // First epochs in which alpha rests by default, at most a tenth of a search.
  int64_t warmup = 0;
};
// Without "none", which is no guard at all.
const std::vector<GuardKind>& guard_kinds();
// Throws std::invalid_argument, with all names.
const GuardKind& find_guard(const std::string& name);

// `bilevel search` has it where the method moves alpha.
constexpr const char* default_guard = "beta-decay";

struct GuardOptions {
  std::string name = "none";
  double strength = 0;
  bool on() const { return name != "none"; }
  // What the supernet must be laid out with (SupernetOptions::partial): 1 but for partial channels.
  int64_t partial() const;
  void validate() const;
};

// What a guard adds to f that is a function of alpha alone; undefined tensors = nothing.
struct Penalty {
  Tensor value, gradient;
};

// Where a search is: an epoch, from 0, of so many, in the first of which alpha may rest.
struct SearchTime {
  int64_t epoch = 0, epochs = 1;
  int64_t resting = 0;
};

class Guard : public Problem {
 public:
  explicit Guard(const Problem& base) : base_(base) {}

  // The guard as it is in the epoch; returns its quantity, for the records.
  virtual double set_epoch(const SearchTime& now) = 0;
  virtual Penalty penalty(const Tensor& /*x*/) const { return {}; }

  // All of the base, unless a guard says otherwise.
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override;
  int64_t outer_samples() const override;
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  const Layout* inner_layout() const override;
  bool inner_loss_uses_outer() const override;

 protected:
  const Problem& base() const { return base_; }

 private:
  const Problem& base_;
};

// Null where the options say none. `engine` computes the derivatives of `supernet`; both must outlive the
// result. Throws std::invalid_argument where the guard cannot act in the supernet's space.
std::unique_ptr<Guard> make_guard(const GuardOptions& options, SupernetProblem& supernet,
                                  const SupernetEngine& engine);

}  // namespace bilevel::nas
