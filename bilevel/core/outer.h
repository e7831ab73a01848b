#pragma once
// Updates of the outer vector x. A transform is `init` and `update`, as in optax, and every optimiser is a
// chain of them: the hypergradient goes in, the step to subtract from x comes out, and projections bring x
// back to where it may be. State is plain data, so that a checkpoint can hold it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/projection.h"
#include "bilevel/core/schedule.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

class FiniteChecks;  // core/finite.h

struct OuterState {
  int64_t step = 0;                             // updates made so far
  std::vector<std::vector<Tensor>> transforms;  // what each transform of the chain remembers, in its order
};

class OuterTransform {
 public:
  virtual ~OuterTransform() = default;
  virtual std::string name() const = 0;                     // for messages
  virtual std::vector<Tensor> init(const Tensor& x) const;  // the default remembers nothing
  // The direction changed. Tensors in `state` are replaced, never written to: a copied state stays what it
  // was.
  virtual Tensor update(const Tensor& direction, const Tensor& x, int64_t step,
                        std::vector<Tensor>& state) const = 0;
};
using OuterTransformPointer = std::shared_ptr<const OuterTransform>;  // shared, so that optimisers are values

// The transforms; an argument out of its bound throws std::invalid_argument.
OuterTransformPointer clip_by_norm(
    double largest_norm);  // scaled so that the whole vector's norm is at most this
OuterTransformPointer clip_by_value(double largest_value);  // every entry brought into [-largest, largest]
OuterTransformPointer add_weight_decay(double decay);       // + decay * x, the gradient of decay/2 |x|^2
OuterTransformPointer heavy_ball(double momentum);          // m <- momentum * m + direction, gives m
// Kingma and Ba 2015, bias-corrected, epsilon outside the root as in PyTorch.
OuterTransformPointer scale_by_adam(double beta1, double beta2, double epsilon);
OuterTransformPointer scale_by_rate(double rate, const Schedule& schedule = {});

class OuterOptimizer {
 public:
  explicit OuterOptimizer(std::vector<OuterTransformPointer> transforms,
                          std::vector<Projection> projections = {});

  OuterState init(const Tensor& x) const;
  // The next x; neither tensor is written to. A hypergradient or a step that is not finite throws
  // NotFiniteError and leaves `state` as it was: a NaN is never stepped over in silence.
  // Checks that put looks at the device off (Oracle::finite) find that later.
  Tensor step(const Tensor& x, const Tensor& hypergradient, OuterState& state,
              FiniteChecks* checks = nullptr) const;

 private:
  std::vector<OuterTransformPointer> transforms_;
  std::vector<Projection> projections_;
};

// What every rule below does to the hypergradient first. In the order of the fields, as in PyTorch's training
// loops: clipping acts on the hypergradient alone, not on the decay.
struct OuterPreparation {
  double clip_norm = 0;     // largest norm; 0 = no clipping, because it hides a rate that is too large
  double clip_value = 0;    // largest absolute entry; 0 = no clipping
  double weight_decay = 0;  // L2, added to the gradient; 0 because it changes the problem that is solved
  void validate() const;
};

struct OuterSgdOptions {
  double rate = 0.1;  // the usual first try; every problem has its own
  double momentum =
      0;  // heavy-ball, in [0, 1); 0 = plain gradient descent, what the papers' theorems are about
  Schedule schedule;  // constant
  OuterPreparation preparation;
  void validate() const;
};
OuterOptimizer make_outer_sgd(const OuterSgdOptions& options = {}, std::vector<Projection> projections = {});

struct OuterAdamOptions {
  double rate = 0.001;    // this and the next three: Kingma and Ba, and torch.optim.Adam
  double beta1 = 0.9;     // memory of the mean, in [0, 1); architecture search uses 0.5
  double beta2 = 0.999;   // memory of the squares, in [0, 1)
  double epsilon = 1e-8;  // > 0, so that an entry whose gradient is always zero does not move
  Schedule schedule;      // constant
  OuterPreparation preparation;
  void validate() const;
};
OuterOptimizer make_outer_adam(const OuterAdamOptions& options = {},
                               std::vector<Projection> projections = {});

// By name, for programs that take the name from a user; each optimiser takes what it knows.
struct OuterOptions {
  std::string optimizer = "sgd";  // sgd or adam
  double rate = 0.1;
  double momentum = 0;  // sgd
  double beta1 = 0.9;   // adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
  Schedule schedule = {};
  OuterPreparation preparation = {};
};
const std::vector<std::string>& outer_optimizer_names();
OuterOptimizer make_outer_optimizer(const OuterOptions& options = {},
                                    std::vector<Projection> projections = {});

}  // namespace bilevel
