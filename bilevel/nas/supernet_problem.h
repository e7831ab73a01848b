#pragma once
// Architecture search as a bilevel problem: x is alpha, w the supernet's weights; g is the cross entropy on
// the training half of the images, f on the validation half, each on batches that are augmented from the
// batch's seed.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/problem.h"
#include "bilevel/data/labelled_images.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/nas/supernet.h"
#include "bilevel/nas/supernet_engine.h"

namespace bilevel::nas {

// Where the images come from. `prepare` is a pure function of the batch: it gathers, augments and normalises
// on the device. `plain` does the same without augmentation, for measuring. `part` is what `prepare` would
// have at some of the batch's positions; undefined where images are prepared one by one, whatever the batch.
struct ImageSource {
  int64_t samples = 0;
  std::function<LabelledImages(const Batch& batch)> prepare;
  std::function<LabelledImages(const Batch& batch)> plain;
  std::function<LabelledImages(const Batch& batch, int64_t begin, int64_t count)> part = {};
};

// The weights of the choices at an alpha, and their derivative there: block by block a multiple of
// diag(soft) - soft soft', which is symmetric.
struct MixturePoint {
  Tensor value;
  Tensor soft, slope;  // flat as alpha; undefined where alpha has no part in the value
  Tensor derivative(const SearchSpace& space, const Tensor& u) const;  // times u
  // The derivative of derivative(u) along v, u held.
  Tensor second_derivative(const SearchSpace& space, const Tensor& u, const Tensor& v) const;
  // v -> (d2/dalpha dalpha of a function of the mixture) v, from the function's gradient in the mixture and
  // its second derivative's product there.
  MatrixProduct curvature(const SearchSpace& space, Tensor gradient, MatrixProduct second) const;

 private:
  template <typename OfBlock>
  Tensor by_blocks(const SearchSpace& space, const OfBlock& of_block) const;
};

// How alpha becomes the weights of the choices.
enum class Sampling {
  softmax,  // all operations at once: DARTS and its kin
  gumbel,  // GDAS (Dong and Yang 2019): one operation per choice, drawn by the batch's seed, straight-through
           // gradient
  uniform,  // a genotype drawn evenly by the batch's seed: training shared weights for a random search
  given     // as set_mixture() says, whatever alpha is: tuning weights while choices are made
};

class SupernetProblem : public SupernetEngine {
 public:
  SupernetProblem(Supernet supernet, ImageSource train, ImageSource valid, const at::TensorOptions& tensors);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;  // 1e-3 * normal
  int64_t inner_samples() const override { return train_.samples; }
  int64_t outer_samples() const override { return valid_.samples; }
  const Layout* inner_layout() const override { return &supernet_.plan().weights; }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  bool inner_loss_uses_outer() const override {
    return sampling_ == Sampling::softmax || sampling_ == Sampling::gumbel;
  }

  Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const override;

  // From now on losses, outputs and derivatives are this rank's part of a batch's: what the ranks' parts sum
  // to is the batch's (ranked_supernet.h adds them up). Every batch must have an image for every rank.
  void divide(BatchRanks ranks);
  const BatchRanks& ranks() const { return ranks_; }
  // What this rank takes of a batch, and its part of the whole.
  struct OwnImages {
    LabelledImages images;
    BatchShare share = {};
  };
  OwnImages own_images(const ImageSource& source, const Batch& batch) const;

  // The loss by its parts, for whoever holds prepared images (a captured GPU graph).
  Tensor mixture(const Tensor& x, uint64_t seed) const;
  MixturePoint mixture_point(const Tensor& x, uint64_t seed) const;
  MixturePoint softmax_point(const Tensor& x) const;  // whatever sampling() says
  Tensor loss(const Tensor& w, const Tensor& mixture,
              const LabelledImages& batch) const;  // mean cross entropy
  const ImageSource& train() const { return train_; }
  const ImageSource& valid() const { return valid_; }
  const Supernet& supernet() const { return supernet_; }

  Sampling sampling() const { return sampling_; }
  void set_sampling(Sampling sampling, double temperature = 1);  // of the gumbel softmax
  void set_mixture(const Tensor& mixture);                       // and Sampling::given

  // Added to what softmax and gumbel make of alpha, as a skip connection beside the mixture is (guards/);
  // undefined = nothing.
  void set_mixture_shift(const Tensor& shift);
  Tensor shifted(const Tensor& mixture) const;

  // Mean loss and accuracy in percent over the whole source, without augmentation, in batches of `batch`;
  // `largest` images at most, 0 = all. The batch's own statistics serve, as in the search. Ranks take a batch
  // each, in turn.
  struct Score {
    double loss = 0, accuracy = 0;
  };
  Score score(const Tensor& w, const Tensor& mixture, const ImageSource& source, int64_t batch,
              int64_t largest = 0) const;

 private:
  // The loss of the logits that this rank has for its images.
  Tensor own_logits(const Tensor& w, const Tensor& mixture, const OwnImages& own) const;
  Tensor own_loss(const Tensor& w, const Tensor& mixture, const OwnImages& own) const;

  Supernet supernet_;
  ImageSource train_, valid_;
  BatchRanks ranks_;
  at::TensorOptions tensors_;
  Sampling sampling_ = Sampling::softmax;
  double temperature_ = 1;
  Tensor given_, shift_;
};

}  // namespace bilevel::nas
