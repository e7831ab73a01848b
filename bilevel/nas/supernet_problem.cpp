#include "bilevel/nas/supernet_problem.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/distributed/rank_slice.h"
#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

// One choice per row as a flat vector of zeros and ones.
Tensor one_hot_rows(const Tensor& rows_by_choices, const Tensor& chosen) {
  return at::zeros_like(rows_by_choices).scatter_(1, chosen.unsqueeze(1), 1.0).flatten();
}

// softmax((log-probabilities + Gumbel noise) / temperature) of every row, flat; shares are no choice and have
// neither.
Tensor gumbel_softmax(const SearchSpace& space, const Tensor& alpha, double temperature, uint64_t seed) {
  Random random(named_seed(seed, "gumbel"));
  const Tensor uniform = random.uniform({alpha.numel()}, alpha.options().device(at::kCPU).dtype(at::kDouble));
  // 1 - u is in (0, 1], so that both logarithms exist but for u = 0, which is pushed off the edge.
  const Tensor noise = -(-(uniform.clamp_min(1e-12)).log()).log();
  const Tensor noisy = noise.to(alpha.options());
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) {
    if (block.shares) {
      parts.push_back(at::softmax(space.block(alpha, block.name), 1).flatten());
      continue;
    }
    const Tensor logits = at::log_softmax(space.block(alpha, block.name), 1);
    parts.push_back(at::softmax((logits + space.block(noisy, block.name)) / temperature, 1).flatten());
  }
  return at::cat(parts);
}

// Hard forward, soft backward.
Tensor gumbel_mixture(const SearchSpace& space, const Tensor& alpha, double temperature, uint64_t seed) {
  const Tensor all = gumbel_softmax(space, alpha, temperature, seed);
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) {
    const Tensor soft = space.block(all, block.name);
    if (block.shares) {
      parts.push_back(soft.flatten());
      continue;
    }
    const Tensor hard = one_hot_rows(soft.detach(), soft.detach().argmax(1)).view_as(soft);
    parts.push_back((hard - soft.detach() + soft).flatten());
  }
  return at::cat(parts);
}

Tensor uniform_mixture(const SearchSpace& space, const Tensor& alpha, uint64_t seed) {
  Random random(named_seed(seed, "operations"));
  return genotype_mixture(space, random_genotype(space, random), alpha.options());
}

}  // namespace

template <typename OfBlock>
Tensor MixturePoint::by_blocks(const SearchSpace& space, const OfBlock& of_block) const {
  std::vector<Tensor> parts;
  for (const AlphaBlock& block : space.alpha) parts.push_back(of_block(block.name).flatten());
  const Tensor product = parts.size() == 1 ? parts[0] : at::cat(parts);
  return slope.defined() ? product * slope : product;
}

Tensor MixturePoint::derivative(const SearchSpace& space, const Tensor& u) const {
  if (!soft.defined()) return at::zeros_like(u);
  return by_blocks(space, [&](const std::string& block) {
    const Tensor m = space.block(soft, block), v = space.block(u, block);
    return m * (v - (m * v).sum(1, /*keepdim=*/true));
  });
}

Tensor MixturePoint::second_derivative(const SearchSpace& space, const Tensor& u, const Tensor& v) const {
  if (!soft.defined()) return at::zeros_like(u);
  const Tensor soft_dot = derivative(space, v);
  return by_blocks(space, [&](const std::string& block) {
    const Tensor m = space.block(soft, block), m_dot = space.block(soft_dot, block),
                 a = space.block(u, block);
    const auto mean = [&](const Tensor& weights) { return (weights * a).sum(1, /*keepdim=*/true); };
    return m_dot * (a - mean(m)) - m * mean(m_dot);
  });
}

MatrixProduct MixturePoint::curvature(const SearchSpace& space, Tensor gradient, MatrixProduct second) const {
  return [here = *this, &space, gradient = std::move(gradient), second = std::move(second)](const Tensor& v) {
    const at::AutoGradMode no_graph(false);
    const Tensor product = second(here.derivative(space, v));
    return here.derivative(space, product) + here.second_derivative(space, gradient, v);
  };
}

SupernetProblem::SupernetProblem(Supernet supernet, ImageSource train, ImageSource valid,
                                 const at::TensorOptions& tensors)
    : supernet_(std::move(supernet)), train_(std::move(train)), valid_(std::move(valid)), tensors_(tensors) {
  if (train_.samples < 1 || valid_.samples < 1) {
    throw std::invalid_argument(
        fmt::format("a search needs training and validation images: {} and {} were given", train_.samples,
                    valid_.samples));
  }
}

void SupernetProblem::set_sampling(Sampling sampling, double temperature) {
  if (!(temperature > 0) || !std::isfinite(temperature)) {
    throw std::invalid_argument(
        fmt::format("the temperature of the sampling, {}, must be positive", temperature));
  }
  sampling_ = sampling;
  temperature_ = temperature;
}

void SupernetProblem::set_mixture(const Tensor& mixture) {
  if (mixture.numel() != supernet_.space().alpha_size()) {
    throw std::invalid_argument(fmt::format("a mixture of {} weights was given; the space {} has {} choices",
                                            mixture.numel(), supernet_.space().name,
                                            supernet_.space().alpha_size()));
  }
  given_ = mixture.detach();
  sampling_ = Sampling::given;
}

void SupernetProblem::set_mixture_shift(const Tensor& shift) {
  shift_ = shift.defined() ? shift.detach().clone() : Tensor();
}

Tensor SupernetProblem::shifted(const Tensor& mixture) const {
  return shift_.defined() ? mixture + shift_ : mixture;
}

Tensor SupernetProblem::mixture(const Tensor& x, uint64_t seed) const {
  switch (sampling_) {
    case Sampling::softmax:
      return shifted(mixture_weights(supernet_.space(), x));
    case Sampling::gumbel:
      return shifted(gumbel_mixture(supernet_.space(), x, temperature_, seed));
    case Sampling::uniform:
      return uniform_mixture(supernet_.space(), x, seed);
    case Sampling::given:
      return given_;
  }
  throw std::logic_error("SupernetProblem: an unknown way of sampling");
}

MixturePoint SupernetProblem::softmax_point(const Tensor& x) const {
  const Tensor soft = mixture_weights(supernet_.space(), x.detach());
  return {.value = shifted(soft), .soft = soft, .slope = {}};
}

MixturePoint SupernetProblem::mixture_point(const Tensor& x, uint64_t seed) const {
  const SearchSpace& space = supernet_.space();
  const Tensor alpha = x.detach();
  if (sampling_ == Sampling::softmax) return softmax_point(alpha);
  MixturePoint point{.value = mixture(alpha, seed), .soft = {}, .slope = {}};
  if (sampling_ != Sampling::gumbel) return point;
  point.soft = gumbel_softmax(space, alpha, temperature_, seed);
  std::vector<Tensor> slopes;
  for (const AlphaBlock& block : space.alpha) {
    slopes.push_back(
        at::full({block.rows * block.choices}, block.shares ? 1 : 1 / temperature_, alpha.options()));
  }
  point.slope = at::cat(slopes);
  return point;
}

Tensor SupernetProblem::loss(const Tensor& w, const Tensor& mixture, const LabelledImages& batch) const {
  return at::cross_entropy_loss(supernet_.logits(w, mixture, batch.images), batch.labels);
}

void SupernetProblem::divide(BatchRanks ranks) { ranks_ = std::move(ranks); }

SupernetProblem::OwnImages SupernetProblem::own_images(const ImageSource& source, const Batch& batch) const {
  if (!ranks_.group) return {source.prepare(batch)};
  const RankSlice slice = slice_of(batch, source.samples, ranks_.group->rank(), ranks_.group->size());
  if (batch.size(source.samples) < ranks_.group->size()) {
    throw std::invalid_argument(fmt::format("a batch of {} images cannot be divided among {} ranks",
                                            batch.size(source.samples), ranks_.group->size()));
  }
  return {source.part ? source.part(batch, slice.begin, slice.count) : source.prepare(slice.batch),
          {.all_images = batch.size(source.samples), .norms = ranks_.norms.get()}};
}

Tensor SupernetProblem::own_logits(const Tensor& w, const Tensor& mixture, const OwnImages& own) const {
  return supernet_.logits(w, mixture, own.images.images, ranks_.norms);
}

Tensor SupernetProblem::own_loss(const Tensor& w, const Tensor& mixture, const OwnImages& own) const {
  const Tensor mean = at::cross_entropy_loss(own_logits(w, mixture, own), own.images.labels);
  return ranks_.group ? mean * own.share.of(own.images.labels.numel()) : mean;
}

Tensor SupernetProblem::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return own_loss(w, mixture(x, batch.seed), own_images(train_, batch));
}

Tensor SupernetProblem::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return own_loss(w, mixture(x, batch.seed), own_images(valid_, batch));
}

Tensor SupernetProblem::inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const {
  const FunctionProblem::Loss at_mixture = [this](const Tensor& weights, const Tensor& m, const Batch& b) {
    return own_loss(weights, m, own_images(train_, b));
  };
  return FunctionProblem(at_mixture, at_mixture, w, mixture).inner_gradient(w, mixture, batch);
}

std::optional<InnerParts> SupernetProblem::inner_parts(const Tensor& w, const Tensor& x,
                                                       const Batch& batch) const {
  const OwnImages own = own_images(train_, batch);
  InnerParts parts;
  parts.outputs = own_logits(w, mixture(x, batch.seed), own);
  parts.loss = [labels = own.images.labels, weight = own.share.of(own.images.labels.numel()),
                divided = ranks_.group != nullptr](const Tensor& logits) {
    const Tensor mean = at::cross_entropy_loss(logits, labels);
    return divided ? mean * weight : mean;
  };
  return parts;
}

Tensor SupernetProblem::initial_inner(uint64_t seed) const {
  return supernet_.plan().initial_weights(seed, tensors_);
}

Tensor SupernetProblem::initial_outer(uint64_t seed) const {
  return initial_alpha(supernet_.space(), seed, tensors_);
}

SupernetProblem::Score SupernetProblem::score(const Tensor& w, const Tensor& mixture,
                                              const ImageSource& source, int64_t batch,
                                              int64_t largest) const {
  const at::AutoGradMode no_gradient(false);
  const int64_t all = largest > 0 ? std::min(largest, source.samples) : source.samples;
  Tensor loss_sum = at::zeros({}, tensors_), right = at::zeros({}, tensors_.dtype(at::kLong));
  const int64_t first = ranks_.group ? ranks_.group->rank() : 0,
                ranks = ranks_.group ? ranks_.group->size() : 1;
  for (int64_t begin = first * batch; begin < all; begin += ranks * batch) {
    Batch part;
    part.index = at::arange(begin, std::min(begin + batch, all), at::kLong);
    const LabelledImages images = source.plain(part);
    const Tensor logits = supernet_.logits(w, mixture, images.images);
    loss_sum += at::cross_entropy_loss(logits, images.labels, {}, at::Reduction::Sum);
    right += logits.argmax(1).eq(images.labels).sum();
  }
  if (ranks_.group) {
    Tensor sums = at::stack({loss_sum.to(at::kDouble), right.to(at::kDouble)});
    ranks_.group->sum_(sums);
    loss_sum = sums[0];
    right = sums[1].to(at::kLong);
  }
  const double count = static_cast<double>(all);
  return {loss_sum.item<double>() / count, 100 * static_cast<double>(right.item<int64_t>()) / count};
}

}  // namespace bilevel::nas
