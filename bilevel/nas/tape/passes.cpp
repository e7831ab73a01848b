#include "bilevel/nas/tape/passes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <map>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "bilevel/nas/tape/channels_last.h"
#include "bilevel/nas/tape/forward_pass.h"
#include "bilevel/nas/tape/fused.h"
#include "bilevel/nas/tape/place.h"

namespace bilevel::nas {
namespace {

template <typename T>
class Point : public TapePoint {
 public:
  Point(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture, const LabelledImages& images,
        const BatchShare& share);
  Tensor loss() const override { return loss_; }
  Tensor logits() const override { return f().logits; }
  Tensor statistics() const override;
  TapeGradients gradients(const Wanted& wanted) override;
  Tensor gradient_in_weights() override;
  TapeGradients products(const Tensor& w_dot, const Tensor& mixture_dot, const Wanted& wanted) override;
  Tensor gauss_newton(const Tensor& w_dot) override;

 private:
  // What a backward pass (or its tangent) leaves in each slot and of each operation.
  struct Backward {
    Tensors adjoint;  // slots
    // Slots: what the operations that read the slot, and its max(value, 0), add to its adjoint.
    std::vector<Tensors> direct, rectified;
    Tensors in_weight;          // entries of the weights
    Tensors shares, of_shares;  // of such, and where their sums go
    Tensors totals;             // operations: the mixes' sums
    Tensors of_norms;           // those that norms spread: of all ranks, as if these images were the batch
  };

  const Tape& tape() const { return forward_.tape(); }
  const ForwardValues& f() const { return forward_.values(); }
  Backward start() const;
  void add(Backward& b, size_t slot, bool rectified, const Tensor& adjoint);
  fused::Sources<T> sources(size_t slot, const Backward& b, const ForwardValues* dot) const;
  void sum_totals(const Tape::Mix& mix, size_t operation, Backward& b) const;
  void gather(size_t slot, const Tape::Mix* mix, size_t operation, Backward& b, const ForwardValues* dot);
  void gather_unless_there(size_t slot, size_t operation, Backward& b, const ForwardValues* dot);
  void spread(const Tape::Mix& op, size_t operation, Backward& b, const ForwardValues* dot);

  void run(const Tape::Convolve& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void run(const Tape::Depthwise& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void run(const Tape::Pool& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void run(const Tape::AveragePool& op, size_t i, Backward& b, const ForwardValues* dot,
           const Wanted& wanted);
  void run(const Tape::MaxPool& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void run(const Tape::Shift& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void run(const Tape::Concatenate& op, size_t i, Backward& b, const ForwardValues* dot,
           const Wanted& wanted);
  void run(const Tape::Mix& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted& wanted);
  void in_weight(const Tape::Convolve& op, Backward& b, const ForwardValues* dot);
  void in_weight(const Tape::Depthwise& op, Backward& b, const ForwardValues* dot);

  // `in_logits`: the loss's adjoint there; `dot`: its tangent, and that of the forward pass.
  void backward(Backward& b, const Tensor& in_logits, const ForwardValues* dot, const Wanted& wanted);
  Tensor in_logits() const;
  Tensor in_logits_dot(const Tensor& logits_dot) const;
  TapeGradients collect(Backward& b, const Wanted& wanted);

  ForwardPass<T> forward_;
  Tensor labels_, loss_, probabilities_;
  Backward b_;
};

template <typename T>
Point<T>::Point(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture, const LabelledImages& images,
                const BatchShare& share)
    : forward_(on, w, mixture, images.images, share), labels_(images.labels) {
  const at::AutoGradMode no_graph(false);
  const Tensor log_probabilities = at::log_softmax(f().logits, 1);
  probabilities_ = log_probabilities.exp();
  loss_ = at::nll_loss(log_probabilities, labels_);
  if (share.all_images > 0) loss_ = loss_ * share.of(forward_.images());
}

template <typename T>
Tensor Point<T>::statistics() const {
  const at::AutoGradMode no_graph(false);
  Tensors inverses, parts;
  const std::vector<size_t> slots = learned_norms(tape());
  for (const size_t slot : slots) inverses.push_back(f().inverse[slot]);
  // Of a channel that is constant, rounding may leave a little less than nothing.
  const Tensor variances = at::cat(inverses).square().reciprocal_().sub_(norm_epsilon).clamp_min_(0);
  int64_t at = 0;
  for (const size_t slot : slots) {
    const int64_t channels = tape().slots[slot].channels;
    parts.push_back(f().mean[slot]);
    parts.push_back(variances.narrow(0, at, channels));
    at += channels;
  }
  return at::cat(parts);
}

template <typename T>
typename Point<T>::Backward Point<T>::start() const {
  Backward b;
  b.adjoint.resize(tape().slots.size());
  b.direct.resize(tape().slots.size());
  b.rectified.resize(tape().slots.size());
  b.totals.resize(tape().operations.size());
  b.of_norms.resize(tape().operations.size());
  b.in_weight.resize(tape().weights.entries().size());
  return b;
}

template <typename T>
void Point<T>::add(Backward& b, size_t slot, bool rectified, const Tensor& adjoint) {
  Tensors& list = rectified ? b.rectified[slot] : b.direct[slot];
  // One place is kept for the adjoint of a norm of the slot itself.
  if (list.size() + 1 < static_cast<size_t>(fused::most_sources)) {
    list.push_back(adjoint);
    return;
  }
  forward_.branches().join(beside);
  list.back().add_(adjoint);
}

template <typename T>
fused::Sources<T> Point<T>::sources(size_t slot, const Backward& b, const ForwardValues* dot) const {
  fused::Sources<T> s{};
  const SlotReaders& readers = forward_.readers(slot);
  const auto put = [](const T** list, int& count, const Tensor& t) {
    if (count == fused::most_sources)
      throw std::logic_error("a tape's slot has more readers than a kernel takes");
    list[count++] = data<T>(t);
  };
  // In the operations' order, the last of which came first.
  const Tensors &rectified = b.rectified[slot], &direct = b.direct[slot];
  for (auto t = rectified.rbegin(); t != rectified.rend(); ++t) put(s.rectified, s.rectifieds, *t);
  for (auto t = direct.rbegin(); t != direct.rend(); ++t) put(s.direct, s.directs, *t);
  if (readers.normed) put(s.direct, s.directs, b.adjoint[slot]);  // a norm of the slot itself
  for (const bool of_rectified : {true, false}) {
    for (const SlotReaders::Mixed& mixed : readers.mixes) {
      if (mixed.rectified != of_rectified) continue;
      if (s.weighted == fused::most_sources) {
        throw std::logic_error("a tape's slot is mixed into more nodes than a kernel takes");
      }
      auto& w = s.weight[s.weighted++];
      w.adjoint = data<T>(b.adjoint[mixed.into]);
      w.gain = forward_.choice(f(), mixed.choice);
      if (dot == nullptr) continue;
      w.adjoint_before = data<T>(b_.adjoint[mixed.into]);
      w.gain_dot = forward_.choice(*dot, mixed.choice);
    }
    if (of_rectified) s.rectified_weights = s.weighted;
  }
  s.feature = data<T>(f().value[slot]);
  return s;
}

// The adjoint of a slot, and the sums that the mix which made it needs. What is added up may come from a
// branch: a convolution's output is read by others than norms, as that of a depthwise one is by its pointwise
// one.
template <typename T>
void Point<T>::gather(size_t slot, const Tape::Mix* mix, size_t operation, Backward& b,
                      const ForwardValues* dot) {
  if (!b.direct[slot].empty() || !b.rectified[slot].empty()) forward_.branches().join(beside);
  fused::Gathering<T> work{};
  work.sources = sources(slot, b, dot);
  const Tensor adjoint = forward_.empty(slot);
  if (b.adjoint[slot].defined()) forward_.keep(b.adjoint[slot]);
  work.adjoint = data<T>(adjoint);
  work.node.shape = forward_.shape(slot);
  if (mix != nullptr) {
    work.node = forward_.node(*mix, dot);
    const int rows = 1 + work.node.norms + work.node.plains;
    const Tensor partial = at::empty({fused::most_blocks * rows * work.node.shape.channels},
                                     forward_.options().dtype(at::kDouble));
    forward_.keep(partial);
    b.totals[operation] = at::empty({rows, work.node.shape.channels}, forward_.options());
    work.sums = {data<double>(partial), data<T>(b.totals[operation])};
    if (dot != nullptr) work.adjoint_before = data<T>(b_.adjoint[slot]);
  }
  RECORD_USER_SCOPE("adjoints gathered and summed");
  at_place(adjoint, [&](auto place) { fused::gather(work, dot != nullptr, place); });
  b.adjoint[slot] = adjoint;
  // Nobody reads the parts again; the point keeps its backward pass for the products.
  b.direct[slot].clear();
  b.rectified[slot].clear();
  if (mix != nullptr && !mix->norms.empty()) sum_totals(*mix, operation, b);
}

template <typename T>
void Point<T>::sum_totals(const Tape::Mix& mix, size_t operation, Backward& b) const {
  const BatchShare& share = forward_.share();
  const Tensor& own = b.totals[operation];
  b.of_norms[operation] = own;
  if (share.norms == nullptr) return;
  Tensor sums = own.narrow(0, 0, 1 + static_cast<int64_t>(mix.norms.size()))
                    .to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  share.norms->sum_(sums);
  b.of_norms[operation] = sums.mul_(share.of(forward_.images())).to(own.scalar_type());
}

// Where norms alone read a slot, `spread` has left its adjoint.
template <typename T>
void Point<T>::gather_unless_there(size_t slot, size_t operation, Backward& b, const ForwardValues* dot) {
  if (!forward_.readers(slot).only_normed()) gather(slot, nullptr, operation, b, dot);
}

template <typename T>
void Point<T>::spread(const Tape::Mix& op, size_t operation, Backward& b, const ForwardValues* dot) {
  if (op.norms.empty()) return;
  fused::Spreading<T> work{};
  work.node = forward_.node(op, dot);
  for (size_t i = 0; i < op.norms.size(); ++i) {
    const Tape::NormTerm& term = op.norms[i];
    Tensor& adjoint = b.adjoint[term.slot];
    if (!adjoint.defined()) adjoint = forward_.empty(term.slot);
    work.node.norm[i].adjoint = data<T>(adjoint) + term.channel;
  }
  work.adjoint = data<T>(b.adjoint[op.out]);
  work.totals = data<T>(b.of_norms[operation]);
  if (dot != nullptr) {
    work.adjoint_before = data<T>(b_.adjoint[op.out]);
    work.totals_before = data<T>(b_.of_norms[operation]);
  }
  RECORD_USER_SCOPE("adjoints of norms");
  at_place(b.adjoint[op.out], [&](auto place) { fused::spread(work, dot != nullptr, place); });
}

template <typename T>
void Point<T>::run(const Tape::Mix& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted&) {
  gather(op.out, &op, i, b, dot);
  spread(op, i, b, dot);
}

template <typename T>
void Point<T>::run(const Tape::Pool& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted&) {
  gather_unless_there(op.out, i, b, dot);
  add(b, op.in, false, ForwardPass<T>::pooled(b.adjoint[op.out], /*transposed=*/true));
}

template <typename T>
void Point<T>::run(const Tape::AveragePool& op, size_t i, Backward& b, const ForwardValues* dot,
                   const Wanted&) {
  gather_unless_there(op.out, i, b, dot);
  add(b, op.in, false,
      at::avg_pool2d_backward(for_padded_pool(b.adjoint[op.out], op.padding),
                              for_padded_pool(f().value[op.in], op.padding), {op.kernel, op.kernel},
                              {op.stride, op.stride}, {op.padding, op.padding}, op.whole,
                              /*count_include_pad=*/false, {})
          .contiguous(at::MemoryFormat::ChannelsLast));
}

template <typename T>
void Point<T>::run(const Tape::MaxPool& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted&) {
  gather_unless_there(op.out, i, b, dot);
  const Tensor in_input = forward_.empty(op.in);
  fused::MaxPooling<T> work = forward_.max_pooling(op);
  work.x = data<T>(b.adjoint[op.out]);
  work.y = data<T>(in_input);
  RECORD_USER_SCOPE("max pool");
  at_place(in_input, [&](auto place) { fused::to_largest(work, place); });
  add(b, op.in, false, in_input);
}

template <typename T>
void Point<T>::run(const Tape::Shift& op, size_t i, Backward& b, const ForwardValues* dot, const Wanted&) {
  gather_unless_there(op.out, i, b, dot);
  const Tape::Slot& to = tape().slots[op.in];
  add(b, op.in, true,
      at::constant_pad_nd(b.adjoint[op.out], {1, -(to.width % 2), 1, -(to.height % 2)})
          .contiguous(at::MemoryFormat::ChannelsLast));
}

template <typename T>
void Point<T>::run(const Tape::Concatenate& op, size_t i, Backward& b, const ForwardValues* dot,
                   const Wanted&) {
  gather_unless_there(op.out, i, b, dot);
  std::map<size_t, Tensor> of_slots;
  int64_t from = 0;
  for (const auto& part : op.parts) {
    const Tensor window = b.adjoint[op.out].narrow(1, from, part.channels);
    Tensor& whole = of_slots[part.slot];
    if (!whole.defined()) whole = forward_.empty(part.slot).zero_();
    whole.narrow(1, part.channel, part.channels).copy_(window);
    from += part.channels;
  }
  for (const auto& [slot, whole] : of_slots) add(b, slot, false, whole);
}

// The gradient in a convolution's weights, which nobody waits for.
template <typename T>
void Point<T>::in_weight(const Tape::Convolve& op, Backward& b, const ForwardValues* dot) {
  const Tensor &weights = f().weights[op.weight], &adjoint = b.adjoint[op.out];
  const Tensor& image = op.rectified ? f().rectified[op.in] : f().value[op.in];
  Tensor image_dot;
  if (dot != nullptr) image_dot = op.rectified ? dot->rectified[op.in] : dot->value[op.in];
  forward_.branches().run(weights.size(2) == 1 ? later_too : later, [&] {
    const Tensor shares = weight_shares(adjoint, image, weights, op.form,
                                        image_dot.defined() ? b_.adjoint[op.out] : Tensor(), image_dot);
    if (shares.defined()) {
      b.in_weight[op.weight] = at::empty_like(weights, at::MemoryFormat::ChannelsLast);
      b.shares.push_back(shares);
      b.of_shares.push_back(b.in_weight[op.weight]);
      return;
    }
    b.in_weight[op.weight] = in_weights(adjoint, image, weights, op.form);
    if (image_dot.defined()) {
      b.in_weight[op.weight].add_(in_weights(b_.adjoint[op.out], image_dot, weights, op.form));
    }
  });
}

template <typename T>
void Point<T>::run(const Tape::Convolve& op, size_t i, Backward& b, const ForwardValues* dot,
                   const Wanted& wanted) {
  gather_unless_there(op.out, i, b, dot);
  const Tensor &weights = f().weights[op.weight], &adjoint = b.adjoint[op.out];
  const Tensor& image = op.rectified ? f().rectified[op.in] : f().value[op.in];
  if (wanted.w) in_weight(op, b, dot);
  if (op.in == 0) return;  // the images
  if (dot != nullptr && dot->packed.defined()) {
    Tensor by_weights;
    forward_.branches().run(
        beside, [&] { by_weights = in_image(b_.adjoint[op.out], image, dot->weights[op.weight], op.form); });
    add(b, op.in, op.rectified, by_weights);
  }
  Tensor in_input;
  forward_.run_beside(dot == nullptr && forward_.fork(op.out).backward,
                      [&] { in_input = in_image(adjoint, image, weights, op.form); });
  add(b, op.in, op.rectified, in_input);
}

template <typename T>
void Point<T>::in_weight(const Tape::Depthwise& op, Backward& b, const ForwardValues* dot) {
  const Tensor& weights = f().weights[op.weight];
  b.in_weight[op.weight] = at::empty(weights.sizes(), forward_.options());
  fused::Depthwise<T> work = forward_.depthwise(op);
  const Tensor partial =
      at::empty({fused::most_images * weights.numel()}, forward_.options().dtype(at::kDouble));
  forward_.keep(partial);
  work.partial = data<double>(partial);
  work.out = data<T>(b.in_weight[op.weight]);
  work.x[0] = data<T>(op.rectified ? f().rectified[op.in] : f().value[op.in]);
  work.adjoint[0] = data<T>(b.adjoint[op.out]);
  if (dot != nullptr) {
    work.pairs = 2;
    work.x[1] = data<T>(op.rectified ? dot->rectified[op.in] : dot->value[op.in]);
    work.adjoint[1] = data<T>(b_.adjoint[op.out]);
  }
  forward_.branches().run(later, [&] {
    RECORD_USER_SCOPE("depthwise convolution, in weights");
    at_place(weights, [&](auto place) { fused::depthwise_in_weights(work, place); });
  });
}

template <typename T>
void Point<T>::run(const Tape::Depthwise& op, size_t i, Backward& b, const ForwardValues* dot,
                   const Wanted& wanted) {
  gather_unless_there(op.out, i, b, dot);
  if (wanted.w) in_weight(op, b, dot);
  const Tensor in_input = forward_.empty(op.in);
  fused::Depthwise<T> work = forward_.depthwise(op);
  work.out = data<T>(in_input);
  work.adjoint[0] = data<T>(b.adjoint[op.out]);
  work.weights[0] = data<T>(f().weights[op.weight]);
  if (dot != nullptr && dot->packed.defined()) {
    work.pairs = 2;
    work.adjoint[1] = data<T>(b_.adjoint[op.out]);
    work.weights[1] = data<T>(dot->weights[op.weight]);
  }
  {
    RECORD_USER_SCOPE("depthwise convolution, in image");
    at_place(in_input, [&](auto place) { fused::depthwise_in_image(work, place); });
  }
  add(b, op.in, op.rectified, in_input);
}

template <typename T>
Tensor Point<T>::in_logits() const {
  return (probabilities_ - at::one_hot(labels_, probabilities_.size(1)))
      .div_(static_cast<double>(forward_.all_images()));
}

template <typename T>
Tensor Point<T>::in_logits_dot(const Tensor& logits_dot) const {
  const Tensor& p = probabilities_;
  return (p * (logits_dot - (p * logits_dot).sum(1, true))).div_(static_cast<double>(forward_.all_images()));
}

template <typename T>
void Point<T>::backward(Backward& b, const Tensor& in_logits_here, const ForwardValues* dot,
                        const Wanted& wanted) {
  const Tensor& weights = f().weights[tape().linear];
  Tensor in_features = at::mm(in_logits_here, weights);
  b.in_weight[tape().linear] = at::mm(in_logits_here.t(), f().features);
  b.in_weight[tape().bias] = in_logits_here.sum(0);
  if (dot != nullptr) {
    const Tensor before = in_logits();
    b.in_weight[tape().linear].addmm_(before.t(), dot->features);
    if (dot->packed.defined()) in_features.addmm_(before, dot->weights[tape().linear]);
  }
  const Tape::Slot& last = tape().slots[tape().last];
  in_features.div_(static_cast<double>(last.height * last.width));
  add(b, tape().last, tape().last_rectified,
      in_features.view({forward_.images(), last.channels, 1, 1})
          .expand({forward_.images(), last.channels, last.height, last.width})
          .contiguous(at::MemoryFormat::ChannelsLast));
  for (size_t i = tape().operations.size(); i-- > 0;) {
    std::visit([&](const auto& op) { run(op, i, b, dot, wanted); }, tape().operations[i]);
  }
  forward_.branches().join_all();
  forward_.release();
}

// Entries of the weights in packed order, then flat.
template <typename T>
TapeGradients Point<T>::collect(Backward& b, const Wanted& wanted) {
  add_shares(b.shares, b.of_shares);
  b.shares.clear();
  b.of_shares.clear();
  TapeGradients result;
  Tensors in_weight = b.in_weight, rows;
  // A norm may be of some channels of its slot, and its entries' gradients of as many parts.
  const auto put = [&](size_t entry, int64_t channel, const Tensor& part) {
    const Tensor& whole = f().weights[entry];
    if (whole.numel() == part.numel()) {
      in_weight[entry] = part;
      return;
    }
    if (!in_weight[entry].defined()) in_weight[entry] = at::zeros_like(whole);
    in_weight[entry].narrow(0, channel, part.numel()).copy_(part);
  };
  for (size_t i = 0; i < tape().operations.size(); ++i) {
    const auto* m = std::get_if<Tape::Mix>(&tape().operations[i]);
    if (m == nullptr) continue;
    rows.push_back(b.totals[i].flatten());
    for (size_t n = 0; n < m->norms.size(); ++n) {
      const Tape::NormTerm& term = m->norms[n];
      if (term.scale) put(*term.scale, term.channel, b.totals[i].select(0, static_cast<int64_t>(1 + n)));
      if (term.shift) put(*term.shift, term.channel, b.totals[i].select(0, 0));
    }
  }
  if (wanted.w) {
    Tensors packed;
    for (const Tensor& t : in_weight) {
      packed.push_back((t.dim() == 4 ? t.permute({0, 2, 3, 1}) : t).reshape({-1}));
    }
    result.w = at::cat(packed).index_select(0, forward_.on_device().to_flat);
  }
  if (wanted.mixture) result.mixture = at::mv(forward_.on_device().choice_of_sum, at::cat(rows));
  return result;
}

template <typename T>
TapeGradients Point<T>::gradients(const Wanted& wanted) {
  const at::AutoGradMode no_graph(false);
  b_ = start();
  backward(b_, in_logits(), nullptr, wanted);
  return collect(b_, wanted);
}

template <typename T>
Tensor Point<T>::gradient_in_weights() {
  const at::AutoGradMode no_graph(false);
  for (const Tape::Operation& op : tape().operations) {
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) in_weight(*c, b_, nullptr);
    if (const auto* d = std::get_if<Tape::Depthwise>(&op)) in_weight(*d, b_, nullptr);
  }
  forward_.branches().join_all();
  forward_.release();
  return collect(b_, {.w = true, .mixture = false}).w;
}

template <typename T>
TapeGradients Point<T>::products(const Tensor& w_dot, const Tensor& mixture_dot, const Wanted& wanted) {
  const at::AutoGradMode no_graph(false);
  const ForwardValues dot = forward_.tangent(w_dot, mixture_dot);
  Backward b = start();
  backward(b, in_logits_dot(dot.logits), &dot, wanted);
  return collect(b, wanted);
}

template <typename T>
Tensor Point<T>::gauss_newton(const Tensor& w_dot) {
  const at::AutoGradMode no_graph(false);
  const Tensor logits_dot = forward_.tangent(w_dot, {}).logits;
  Backward b = start();
  const Wanted in_w{.w = true, .mixture = false};
  backward(b, in_logits_dot(logits_dot), nullptr, in_w);
  return collect(b, in_w).w;
}

}  // namespace

bool can_run_tape(const at::TensorOptions& tensors) {
  const auto type = c10::typeMetaToScalarType(tensors.dtype());
  if (type != at::kFloat && type != at::kDouble) return false;
#ifdef BILEVEL_HAS_CUDA
  if (tensors.device().is_cuda()) return true;
#endif
  return tensors.device().is_cpu();
}

std::unique_ptr<TapePoint> run_tape(const TapeOnDevice& tape, const Tensor& w, const Tensor& mixture,
                                    const LabelledImages& images, const BatchShare& share) {
  if (w.scalar_type() == at::kDouble) return std::make_unique<Point<double>>(tape, w, mixture, images, share);
  if (w.scalar_type() == at::kFloat) return std::make_unique<Point<float>>(tape, w, mixture, images, share);
  throw std::invalid_argument("a tape runs in float or double");
}

}  // namespace bilevel::nas
