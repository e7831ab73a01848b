#pragma once
// The forward pass over a tape at a point, and its tangents there. What it leaves is what the backward passes
// read (passes.cpp).

#include <optional>
#include <utility>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/nas/tape/branches.h"
#include "bilevel/nas/tape/fused.h"
#include "bilevel/nas/tape/tape_on_device.h"

namespace bilevel::nas {

// Branches: what the next mix waits for, and what only the end does. A fork takes as long as a small kernel,
// so that only what is long, or what nobody waits for, has a branch.
constexpr size_t beside = 0, later = 1, later_too = 2;

// One tensor per slot, or none.
using Tensors = std::vector<Tensor>;

// What the pass (or its tangent) leaves in each slot.
struct ForwardValues {
  Tensors value, rectified;
  Tensors more;  // tangents of convolutions: what the weights' tangent adds
  // The CPU's tangents: value, or rectified, beside the point's own.
  Tensors beside_value, beside_rectified;
  Tensors mean, inverse;  // mean_dot and moment of a tangent
  Tensors index;          // of largest pixels; the point's own serve its tangents too
  Tensor packed;          // weights
  std::vector<Tensor> weights;
  Tensor mixture, features, logits;
};

// Who reads a slot.
struct SlotReaders {
  std::vector<size_t> operations;  // all but mixes
  struct Mixed {
    size_t into;  // a slot that it is a plain term of
    std::optional<size_t> choice;
    bool rectified;
  };
  std::vector<Mixed> mixes;
  bool normed = false;
  bool only_normed() const { return normed && operations.empty() && mixes.empty(); }
};

// Whether the operation that makes a slot runs beside the one that follows it: forwards, or backwards.
struct Fork {
  bool forward = false, backward = false;
};

template <typename T>
class ForwardPass {
 public:
  // `share`: what the images are of their batch. The statistics of all norms of a mix are one sum over ranks.
  ForwardPass(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture, const Tensor& images,
              const BatchShare& share = {});

  const ForwardValues& values() const { return f_; }
  // Along (w_dot, mixture_dot), either undefined = 0.
  ForwardValues tangent(const Tensor& w_dot, const Tensor& mixture_dot);

  const Tape& tape() const { return on_.tape; }
  const TapeOnDevice& on_device() const { return on_; }
  const at::TensorOptions& options() const { return options_; }
  int64_t images() const { return images_; }
  int64_t all_images() const { return share_.all_images == 0 ? images_ : share_.all_images; }
  const BatchShare& share() const { return share_; }
  const SlotReaders& readers(size_t slot) const { return readers_[slot]; }
  const Fork& fork(size_t slot) const { return forks_[slot]; }
  Branches& branches() { return branches_; }
  void keep(Tensor t) { kept_.push_back(std::move(t)); }  // until the pass ends, for branches
  void release() { kept_.clear(); }

  Tensor empty(size_t slot) const;
  fused::Shape shape(size_t slot) const;
  // `dot`: the tangents of the forward pass.
  fused::Node<T> node(const Tape::Mix& mix, const ForwardValues* dot) const;
  fused::Depthwise<T> depthwise(const Tape::Depthwise& op) const;  // without tensors
  fused::MaxPooling<T> max_pooling(const Tape::MaxPool& op) const;
  const T* choice(const ForwardValues& f, const std::optional<size_t>& index) const;
  static Tensor pooled(const Tensor& x, bool transposed);
  template <typename Work>
  void run_beside(bool fork, const Work& work) {
    fork ? branches_.run(beside, work) : work();
  }

 private:
  ForwardValues start(const Tensor& w, const Tensor& mixture) const;
  std::vector<Tensor> split(const Tensor& packed) const;
  void find_readers();
  void find_forks();
  void run(ForwardValues& f, bool tangent);
  void end(ForwardValues& f, bool tangent) const;

  void run(const Tape::Convolve& op, ForwardValues& f, bool tangent);
  void run(const Tape::Depthwise& op, ForwardValues& f, bool tangent);
  void run(const Tape::Pool& op, ForwardValues& f, bool tangent);
  void run(const Tape::AveragePool& op, ForwardValues& f, bool tangent);
  void run(const Tape::MaxPool& op, ForwardValues& f, bool tangent);
  void run(const Tape::Shift& op, ForwardValues& f, bool tangent);
  void run(const Tape::Concatenate& op, ForwardValues& f, bool tangent);
  void run(const Tape::Mix& op, ForwardValues& f, bool tangent);
  void statistics(const std::vector<Tape::NormTerm>& norms, ForwardValues& f, bool tangent);
  void sum_statistics(const std::vector<size_t>& slots, ForwardValues& f, bool tangent);
  const T* learned(const ForwardValues& f, const Tape::NormTerm& term,
                   const std::optional<size_t>& index) const;

  const TapeOnDevice& on_;
  at::TensorOptions options_;
  int64_t images_;
  BatchShare share_;
  std::vector<SlotReaders> readers_;
  std::vector<Fork> forks_;
  ForwardValues f_;
  Tensors kept_;
  Branches branches_;
};

}  // namespace bilevel::nas
