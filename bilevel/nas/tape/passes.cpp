#include "bilevel/nas/tape/passes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#ifdef BILEVEL_HAS_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include "bilevel/fields/option_text.h"
#include "bilevel/nas/tape/branches.h"
#include "bilevel/nas/tape/channels_last.h"
#include "bilevel/nas/tape/fused.h"

namespace bilevel::nas {
namespace {

constexpr double batch_norm_epsilon = 1e-5;
// Branches: what the next mix waits for, and what only the end does. A fork takes as long as a small kernel,
// so that only what is long, or what nobody waits for, has a branch.
constexpr size_t beside = 0, later = 1, later_too = 2;

template <typename Work>  // work(place): where fused operations on `where` run
void at_place(const Tensor& where, const Work& work) {
#ifdef BILEVEL_HAS_CUDA
  if (where.is_cuda()) {
    work(fused::Cuda{c10::cuda::getCurrentCUDAStream().stream()});
    return;
  }
#endif
  if (!where.is_cpu()) throw std::invalid_argument("a tape runs on the CPU or on a GPU with its kernels");
  work(fused::Cpu{});
}

// One tensor per slot, or none.
using Tensors = std::vector<Tensor>;

template <typename T>
T* data(const Tensor& t) {
  return t.defined() ? t.data_ptr<T>() : nullptr;
}

template <typename T>
class Point : public TapePoint {
 public:
  Point(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture, const LabelledImages& images);
  Tensor loss() const override { return loss_; }
  TapeGradients gradients(const Wanted& wanted) override;
  Tensor gradient_in_weights() override;
  TapeGradients products(const Tensor& w_dot, const Tensor& mixture_dot, const Wanted& wanted) override;

 private:
  // What one pass (or its tangent) leaves in each slot and of each operation.
  struct Forward {
    Tensors value, rectified;  // slots
    Tensors more;              // tangents of convolutions: what the weights' tangent adds
    Tensors mean, inverse;     // slots; mean_dot and moment of a tangent
    Tensor packed;             // weights
    std::vector<Tensor> weights;
    Tensor mixture, features, logits;
  };
  struct Backward {
    Tensors adjoint;            // slots
    Tensors in_input;           // operations: convolutions and pools
    Tensors in_more;            // operations: convolutions, by the weights' tangent
    Tensors in_weight;          // entries of the weights
    Tensors shares, of_shares;  // of such, and where their sums go
    Tensors totals;             // operations
    Tensor logits;
  };

  const Tape& tape() const { return on_.tape; }
  std::vector<Tensor> split(const Tensor& packed) const;
  Tensor empty(size_t slot, int64_t channels = 0) const;
  fused::Shape shape(size_t slot) const;

  Forward forward_start(const Tensor& w, const Tensor& mixture) const;
  void statistics(const std::vector<Tape::NormTerm>& norms, Forward& f, bool tangent);
  fused::Node<T> node(const Tape::Mix& mix, const Forward* dot) const;
  fused::Sources<T> sources(size_t slot, const Backward& b, const Forward* dot) const;
  const T* choice(const Forward& f, const std::optional<size_t>& index) const;
  const T* learned(const Forward& f, const std::optional<size_t>& index) const;

  static Tensor pooled(const Tensor& x, bool transposed);
  void forward(const Tape::Convolve& op, Forward& f, bool tangent);
  void mix(const Tape::Mix& op, Forward& f, bool tangent);
  void gather(size_t slot, const Tape::Mix* mix, size_t operation, Backward& b, const Forward* dot);
  void spread(const Tape::Mix& op, size_t operation, Backward& b, const Forward* dot);
  void backward(size_t operation, Backward& b, const Forward* dot, const Wanted& wanted);
  void in_weight(const Tape::Convolve& op, Backward& b, const Forward* dot);
  void head(Backward& b, const Forward* dot);
  TapeGradients collect(Backward& b, const Wanted& wanted);

  const TapeOnDevice& on_;
  at::TensorOptions options_;
  int64_t images_;
  Tensor labels_, loss_, probabilities_;
  Forward f_;
  Backward b_;
  // Who reads a slot.
  struct Readers {
    std::vector<size_t> operations;                               // convolutions, pools, pairs
    std::vector<std::pair<size_t, std::optional<size_t>>> mixes;  // slots it is a plain term of, choices
    bool normed = false;
  };
  std::vector<Readers> readers_;
  Tensors kept_;  // until the pass ends, for branches
  Branches branches_;
};

template <typename T>
Point<T>::Point(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture, const LabelledImages& images)
    : on_(on),
      options_(w.options().requires_grad(false)),
      images_(images.images.size(0)),
      labels_(images.labels),
      readers_(on.tape.slots.size()),
      branches_(w) {
  const at::AutoGradMode no_graph(false);
  for (const Tape::Slot& s : tape().slots) {
    if (images_ * s.height * s.width * s.channels <= std::numeric_limits<int>::max()) continue;
    throw OptionError(
        fmt::format("a batch of {} images with {} channels of {} x {} pixels inside the network: a tape's "
                    "tensors have at "
                    "most {} numbers; give a smaller {} or fewer {}",
                    images_, s.channels, s.height, s.width, std::numeric_limits<int>::max(), named("batch"),
                    named("channels")));
  }
  for (size_t i = 0; i < tape().operations.size(); ++i) {
    const auto read = [&](size_t slot) { readers_[slot].operations.push_back(i); };
    const Tape::Operation& op = tape().operations[i];
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) read(c->in);
    if (const auto* p = std::get_if<Tape::Pool>(&op)) read(p->in);
    if (const auto* p = std::get_if<Tape::Pairs>(&op)) read(p->in);
    if (const auto* m = std::get_if<Tape::Mix>(&op)) {
      for (const Tape::NormTerm& term : m->norms) readers_[term.slot].normed = true;
      for (const Tape::PlainTerm& term : m->plains)
        readers_[term.slot].mixes.emplace_back(m->out, term.choice);
    }
  }
  f_ = forward_start(w.detach(), mixture.detach());
  f_.value[0] = images.images.contiguous(at::MemoryFormat::ChannelsLast);
  for (const Tape::Operation& op : tape().operations) {
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) forward(*c, f_, false);
    if (const auto* p = std::get_if<Tape::Pool>(&op)) {
      f_.value[p->out] = pooled(f_.value[p->in], false);
    }
    if (const auto* p = std::get_if<Tape::Pairs>(&op)) {
      f_.value[p->out] = at::avg_pool2d(f_.value[p->in], 2, 2, 0, /*ceil_mode=*/true)
                             .contiguous(at::MemoryFormat::ChannelsLast);
    }
    if (const auto* m = std::get_if<Tape::Mix>(&op)) mix(*m, f_, false);
  }
  branches_.join_all();
  f_.features = f_.rectified[tape().last].mean({2, 3});
  f_.logits = at::linear(f_.features, f_.weights[tape().linear], f_.weights[tape().bias]);
  const Tensor log_probabilities = at::log_softmax(f_.logits, 1);
  probabilities_ = log_probabilities.exp();
  loss_ = at::nll_loss(log_probabilities, labels_);
}

template <typename T>
typename Point<T>::Forward Point<T>::forward_start(const Tensor& w, const Tensor& mixture) const {
  Forward f;
  const size_t slots = tape().slots.size();
  f.value.resize(slots);
  f.rectified.resize(slots);
  f.more.resize(slots);
  f.mean.resize(slots);
  f.inverse.resize(slots);
  if (w.defined()) {
    f.packed = w.index_select(0, on_.to_packed);
    f.weights = split(f.packed);
  }
  if (mixture.defined()) f.mixture = mixture.contiguous();
  return f;
}

template <typename T>
std::vector<Tensor> Point<T>::split(const Tensor& packed) const {
  std::vector<Tensor> parts;
  for (const Layout::Entry& e : tape().weights.entries()) {
    if (e.shape.size() == 4) {
      const int64_t inputs = e.shape[1], height = e.shape[2], width = e.shape[3];
      parts.push_back(
          packed.as_strided(e.shape, {inputs * height * width, 1, width * inputs, inputs}, e.offset));
    } else {
      parts.push_back(packed.narrow(0, e.offset, e.size).view(e.shape));
    }
  }
  return parts;
}

template <typename T>
Tensor Point<T>::empty(size_t slot, int64_t channels) const {
  const Tape::Slot& s = tape().slots[slot];
  return at::empty({images_, channels > 0 ? channels : s.channels, s.height, s.width},
                   options_.memory_format(at::MemoryFormat::ChannelsLast));
}

template <typename T>
fused::Shape Point<T>::shape(size_t slot) const {
  const Tape::Slot& s = tape().slots[slot];
  return {static_cast<int>(images_), static_cast<int>(s.height), static_cast<int>(s.width),
          static_cast<int>(s.channels)};
}

template <typename T>
const T* Point<T>::choice(const Forward& f, const std::optional<size_t>& index) const {
  return index && f.mixture.defined() ? data<T>(f.mixture) + *index : nullptr;
}

template <typename T>
const T* Point<T>::learned(const Forward& f, const std::optional<size_t>& index) const {
  return index && f.packed.defined() ? data<T>(f.weights[*index]) : nullptr;
}

// `dot`: the tangents of the forward pass.
template <typename T>
fused::Node<T> Point<T>::node(const Tape::Mix& mix, const Forward* dot) const {
  fused::Node<T> node{};
  node.shape = shape(mix.out);
  node.norms = static_cast<int>(mix.norms.size());
  node.plains = static_cast<int>(mix.plains.size());
  if (node.norms > fused::most_norms || node.plains > fused::most_plains) {
    throw std::logic_error("a tape's mix has more terms than a kernel takes");
  }
  for (size_t i = 0; i < mix.norms.size(); ++i) {
    const Tape::NormTerm& term = mix.norms[i];
    fused::Norm<T>& norm = node.norm[i];
    norm.z = data<T>(f_.value[term.slot]) + term.channel;
    norm.pitch = static_cast<int>(tape().slots[term.slot].channels);
    norm.mean = data<T>(f_.mean[term.slot]) + term.channel;
    norm.inverse = data<T>(f_.inverse[term.slot]) + term.channel;
    norm.gain = term.choice ? choice(f_, term.choice) : learned(f_, term.scale);
    norm.gain_step = term.choice ? 0 : 1;
    norm.shift = learned(f_, term.shift);
    if (dot == nullptr) continue;
    norm.z_dot = data<T>(dot->value[term.slot]) + term.channel;
    if (dot->more[term.slot].defined()) norm.z_dot_more = data<T>(dot->more[term.slot]) + term.channel;
    norm.mean_dot = data<T>(dot->mean[term.slot]) + term.channel;
    norm.moment = data<T>(dot->inverse[term.slot]) + term.channel;
    norm.gain_dot = term.choice ? choice(*dot, term.choice) : learned(*dot, term.scale);
    norm.shift_dot = learned(*dot, term.shift);
  }
  for (size_t i = 0; i < mix.plains.size(); ++i) {
    const Tape::PlainTerm& term = mix.plains[i];
    fused::Plain<T>& plain = node.plain[i];
    plain.x = data<T>(f_.value[term.slot]);
    plain.gain = choice(f_, term.choice);
    if (dot == nullptr) continue;
    plain.x_dot = data<T>(dot->value[term.slot]);
    plain.gain_dot = choice(*dot, term.choice);
  }
  return node;
}

// The statistics of what is normed for the first time, tensors of one shape in one go.
template <typename T>
void Point<T>::statistics(const std::vector<Tape::NormTerm>& norms, Forward& f, bool tangent) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<size_t>> groups;
  for (const Tape::NormTerm& term : norms) {
    if (f.mean[term.slot].defined()) continue;
    const Tape::Slot& s = tape().slots[term.slot];
    f.mean[term.slot] = at::empty({s.channels}, options_);
    f.inverse[term.slot] = at::empty({s.channels}, options_);
    groups[{s.channels, s.height, s.width}].push_back(term.slot);
  }
  for (const auto& group : groups) {
    const std::vector<size_t>& slots = group.second;
    for (size_t first = 0; first < slots.size(); first += fused::most_tensors) {
      const size_t end = std::min(slots.size(), first + fused::most_tensors);
      fused::Statistics<T> work{};
      work.shape = shape(slots[first]);
      work.tensors = static_cast<int>(end - first);
      work.epsilon = batch_norm_epsilon;
      kept_.push_back(at::empty({work.tensors * fused::most_blocks * 2 * work.shape.channels},
                                options_.dtype(at::kDouble)));
      work.partial = data<double>(kept_.back());
      for (size_t i = first; i < end; ++i) {
        const size_t slot = slots[i], k = i - first;
        work.z[k] = data<T>(f_.value[slot]);
        work.mean[k] = data<T>(f_.mean[slot]);
        work.inverse[k] = data<T>(f_.inverse[slot]);
        if (!tangent) continue;
        work.z_dot[k] = data<T>(f.value[slot]);
        work.z_dot_more[k] = data<T>(f.more[slot]);
        work.mean_dot[k] = data<T>(f.mean[slot]);
        work.moment[k] = data<T>(f.inverse[slot]);
      }
      at_place(f_.value[slots[first]], [&](auto place) { fused::statistics(work, tangent, place); });
    }
  }
}

template <typename T>
void Point<T>::forward(const Tape::Convolve& op, Forward& f, bool tangent) {
  const Tensor& weights = f_.weights[op.weight];
  const Tensor& image = op.rectified ? f_.rectified[op.in] : f_.value[op.in];
  if (!tangent) {
    f.value[op.out] = convolved(image, weights, op.form);
    return;
  }
  const Tensor& image_dot = op.rectified ? f.rectified[op.in] : f.value[op.in];
  Tensor by_weights;
  if (f.packed.defined()) {
    branches_.run(beside, [&] { by_weights = convolved(image, f.weights[op.weight], op.form); });
  }
  if (!image_dot.defined()) {  // of the images
    f.value[op.out] = by_weights.defined() ? by_weights : at::zeros_like(f_.value[op.out]);
    return;
  }
  f.value[op.out] = convolved(image_dot, weights, op.form);
  f.more[op.out] = by_weights;
  if (readers_[op.out].normed || !by_weights.defined()) return;
  branches_.join(beside);  // only norms read the two apart
  f.value[op.out].add_(by_weights);
}

template <typename T>
Tensor Point<T>::pooled(const Tensor& x, bool transposed) {
  const Tensor y = at::empty_like(x);
  const auto size = [&](int64_t i) { return static_cast<int>(x.size(i)); };
  const fused::Pooling<T> work{{size(0), size(2), size(3), size(1)}, data<T>(x), data<T>(y), transposed};
  at_place(x, [&](auto place) { fused::pool(work, place); });
  return y;
}

template <typename T>
void Point<T>::mix(const Tape::Mix& op, Forward& f, bool tangent) {
  branches_.join(beside);
  statistics(op.norms, f, tangent);
  f.value[op.out] = empty(op.out);
  if (tape().slots[op.out].rectified) f.rectified[op.out] = empty(op.out);
  fused::Mixing<T> work{};
  work.node = node(op, tangent ? &f : nullptr);
  work.y = data<T>(f.value[op.out]);
  work.rectified = data<T>(f.rectified[op.out]);
  work.value = data<T>(f_.value[op.out]);
  at_place(f.value[op.out], [&](auto place) { fused::mix(work, tangent, place); });
}

template <typename T>
fused::Sources<T> Point<T>::sources(size_t slot, const Backward& b, const Forward* dot) const {
  fused::Sources<T> s{};
  const Readers& readers = readers_[slot];
  const auto put = [](const T** list, int& count, const Tensor& t) {
    if (!t.defined()) return;
    if (count == fused::most_sources)
      throw std::logic_error("a tape's slot has more readers than a kernel takes");
    list[count++] = data<T>(t);
  };
  for (const size_t i : readers.operations) {
    const Tape::Operation& op = tape().operations[i];
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) {
      for (const Tensor& t : {b.in_input[i], b.in_more[i]}) {
        if (c->rectified) {
          put(s.rectified, s.rectifieds, t);
        } else {
          put(s.direct, s.directs, t);
        }
      }
    } else {
      put(s.direct, s.directs, b.in_input[i]);
    }
  }
  if (slot == tape().last) put(s.rectified, s.rectifieds, b.logits);
  if (readers.normed) put(s.direct, s.directs, b.adjoint[slot]);  // a norm of the slot itself
  for (const auto& [mixed, index] : readers.mixes) {
    if (s.weighted == fused::most_sources) {
      throw std::logic_error("a tape's slot is mixed into more nodes than a kernel takes");
    }
    auto& w = s.weight[s.weighted++];
    w.adjoint = data<T>(b.adjoint[mixed]);
    w.gain = choice(f_, index);
    if (dot == nullptr) continue;
    w.adjoint_before = data<T>(b_.adjoint[mixed]);
    w.gain_dot = choice(*dot, index);
  }
  s.feature = data<T>(f_.value[slot]);
  return s;
}

// The adjoint of a slot, and the sums that the mix which made it needs.
template <typename T>
void Point<T>::gather(size_t slot, const Tape::Mix* mix, size_t operation, Backward& b, const Forward* dot) {
  fused::Gathering<T> work{};
  work.sources = sources(slot, b, dot);
  const Tensor adjoint = empty(slot);
  if (b.adjoint[slot].defined()) kept_.push_back(b.adjoint[slot]);
  work.adjoint = data<T>(adjoint);
  work.node.shape = shape(slot);
  if (mix != nullptr) {
    work.node = node(*mix, dot);
    const int rows = 1 + work.node.norms + work.node.plains;
    kept_.push_back(
        at::empty({fused::most_blocks * rows * work.node.shape.channels}, options_.dtype(at::kDouble)));
    b.totals[operation] = at::empty({rows, work.node.shape.channels}, options_);
    work.sums = {data<double>(kept_.back()), data<T>(b.totals[operation])};
    if (dot != nullptr) work.adjoint_before = data<T>(b_.adjoint[slot]);
  }
  at_place(adjoint, [&](auto place) { fused::gather(work, dot != nullptr, place); });
  b.adjoint[slot] = adjoint;
}

template <typename T>
void Point<T>::spread(const Tape::Mix& op, size_t operation, Backward& b, const Forward* dot) {
  if (op.norms.empty()) return;
  fused::Spreading<T> work{};
  work.node = node(op, dot);
  for (size_t i = 0; i < op.norms.size(); ++i) {
    const Tape::NormTerm& term = op.norms[i];
    Tensor& adjoint = b.adjoint[term.slot];
    if (!adjoint.defined()) adjoint = empty(term.slot);
    work.node.norm[i].adjoint = data<T>(adjoint) + term.channel;
  }
  work.adjoint = data<T>(b.adjoint[op.out]);
  work.totals = data<T>(b.totals[operation]);
  if (dot != nullptr) {
    work.adjoint_before = data<T>(b_.adjoint[op.out]);
    work.totals_before = data<T>(b_.totals[operation]);
  }
  at_place(b.adjoint[op.out], [&](auto place) { fused::spread(work, dot != nullptr, place); });
}

// The gradient in a convolution's weights, which nobody waits for.
template <typename T>
void Point<T>::in_weight(const Tape::Convolve& op, Backward& b, const Forward* dot) {
  const Tensor &weights = f_.weights[op.weight], &adjoint = b.adjoint[op.out];
  const Tensor& image = op.rectified ? f_.rectified[op.in] : f_.value[op.in];
  Tensor image_dot;
  if (dot != nullptr) image_dot = op.rectified ? dot->rectified[op.in] : dot->value[op.in];
  branches_.run(weights.size(2) == 1 ? later_too : later, [&] {
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
void Point<T>::backward(size_t i, Backward& b, const Forward* dot, const Wanted& wanted) {
  const Tape::Operation& op = tape().operations[i];
  if (const auto* m = std::get_if<Tape::Mix>(&op)) {
    branches_.join(beside);
    gather(m->out, m, i, b, dot);
    spread(*m, i, b, dot);
  } else if (const auto* p = std::get_if<Tape::Pool>(&op)) {
    gather(p->out, nullptr, i, b, dot);
    b.in_input[i] = pooled(b.adjoint[p->out], /*transposed=*/true);
  } else if (const auto* q = std::get_if<Tape::Pairs>(&op)) {
    branches_.join(beside);
    gather(q->out, nullptr, i, b, dot);
    b.in_input[i] = at::avg_pool2d_backward(b.adjoint[q->out], f_.value[q->in], {2, 2}, {2, 2}, {0, 0},
                                            /*ceil_mode=*/true, true, {})
                        .contiguous(at::MemoryFormat::ChannelsLast);
  } else if (const auto* c = std::get_if<Tape::Convolve>(&op)) {
    if (!readers_[c->out].normed) gather(c->out, nullptr, i, b, dot);
    const Tensor &weights = f_.weights[c->weight], &adjoint = b.adjoint[c->out];
    const Tensor& image = c->rectified ? f_.rectified[c->in] : f_.value[c->in];
    const bool by_weights = dot != nullptr && dot->packed.defined();
    if (wanted.w) in_weight(*c, b, dot);
    if (c->in == 0) return;  // the images
    if (by_weights) {
      branches_.run(beside, [&] {
        b.in_more[i] = in_image(b_.adjoint[c->out], image, dot->weights[c->weight], c->form);
      });
    }
    b.in_input[i] = in_image(adjoint, image, weights, c->form);
  }
}

// The loss's adjoint in the last slot's rectified values, and its tangent.
template <typename T>
void Point<T>::head(Backward& b, const Forward* dot) {
  const Tensor& weights = f_.weights[tape().linear];
  const double n = static_cast<double>(images_);
  Tensor in_logits, in_features;
  if (dot == nullptr) {
    in_logits = (probabilities_ - at::one_hot(labels_, probabilities_.size(1))).div_(n);
    in_features = at::mm(in_logits, weights);
    b.in_weight[tape().linear] = at::mm(in_logits.t(), f_.features);
  } else {
    const Tensor& p = probabilities_;
    in_logits = (p * (dot->logits - (p * dot->logits).sum(1, true))).div_(n);
    in_features = at::mm(in_logits, weights);
    b.in_weight[tape().linear] = at::mm(in_logits.t(), f_.features);
    const Tensor before = (p - at::one_hot(labels_, p.size(1))).div_(n);
    b.in_weight[tape().linear].addmm_(before.t(), dot->features);
    if (dot->packed.defined()) in_features.addmm_(before, dot->weights[tape().linear]);
  }
  b.in_weight[tape().bias] = in_logits.sum(0);
  const Tape::Slot& last = tape().slots[tape().last];
  in_features.div_(static_cast<double>(last.height * last.width));
  b.logits = in_features.view({images_, last.channels, 1, 1})
                 .expand({images_, last.channels, last.height, last.width})
                 .contiguous(at::MemoryFormat::ChannelsLast);
}

// Entries of the weights in packed order, then flat.
template <typename T>
TapeGradients Point<T>::collect(Backward& b, const Wanted& wanted) {
  add_shares(b.shares, b.of_shares);
  b.shares.clear();
  b.of_shares.clear();
  TapeGradients result;
  Tensors in_weight = b.in_weight, rows;
  for (size_t i = 0; i < tape().operations.size(); ++i) {
    const auto* m = std::get_if<Tape::Mix>(&tape().operations[i]);
    if (m == nullptr) continue;
    rows.push_back(b.totals[i].flatten());
    for (size_t n = 0; n < m->norms.size(); ++n) {
      const Tape::NormTerm& term = m->norms[n];
      if (term.scale) in_weight[*term.scale] = b.totals[i].select(0, static_cast<int64_t>(1 + n));
      if (term.shift) in_weight[*term.shift] = b.totals[i].select(0, 0);
    }
  }
  const auto flat = [](const Tensors& parts) {
    Tensors packed;
    for (const Tensor& t : parts) {
      packed.push_back((t.dim() == 4 ? t.permute({0, 2, 3, 1}) : t).reshape({-1}));
    }
    return at::cat(packed);
  };
  if (wanted.w) {
    result.w = flat(in_weight).index_select(0, on_.to_flat);
  }
  if (wanted.mixture) result.mixture = at::mv(on_.choice_of_sum, at::cat(rows));
  return result;
}

template <typename T>
TapeGradients Point<T>::gradients(const Wanted& wanted) {
  const at::AutoGradMode no_graph(false);
  const size_t operations = tape().operations.size(), entries = tape().weights.entries().size();
  b_.adjoint.resize(tape().slots.size());
  for (Tensors* each : {&b_.in_input, &b_.in_more, &b_.totals}) each->resize(operations);
  b_.in_weight.resize(entries);
  head(b_, nullptr);
  for (size_t i = operations; i-- > 0;) backward(i, b_, nullptr, wanted);
  branches_.join_all();
  kept_.clear();
  return collect(b_, wanted);
}

template <typename T>
Tensor Point<T>::gradient_in_weights() {
  const at::AutoGradMode no_graph(false);
  for (const Tape::Operation& op : tape().operations) {
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) in_weight(*c, b_, nullptr);
  }
  branches_.join_all();
  return collect(b_, {.w = true, .mixture = false}).w;
}

template <typename T>
TapeGradients Point<T>::products(const Tensor& w_dot, const Tensor& mixture_dot, const Wanted& wanted) {
  const at::AutoGradMode no_graph(false);
  Forward f = forward_start(w_dot, mixture_dot);
  for (const Tape::Operation& op : tape().operations) {
    if (const auto* c = std::get_if<Tape::Convolve>(&op)) forward(*c, f, true);
    if (const auto* p = std::get_if<Tape::Pool>(&op)) {
      f.value[p->out] = pooled(f.value[p->in], false);
    }
    if (const auto* p = std::get_if<Tape::Pairs>(&op)) {
      f.value[p->out] = at::avg_pool2d(f.value[p->in], 2, 2, 0, /*ceil_mode=*/true)
                            .contiguous(at::MemoryFormat::ChannelsLast);
    }
    if (const auto* m = std::get_if<Tape::Mix>(&op)) mix(*m, f, true);
  }
  branches_.join_all();
  f.features = f.rectified[tape().last].mean({2, 3});
  f.logits = at::mm(f.features, f_.weights[tape().linear].t());
  if (w_dot.defined()) {
    f.logits.addmm_(f_.features, f.weights[tape().linear].t()).add_(f.weights[tape().bias]);
  }
  Backward b;
  const size_t operations = tape().operations.size(), entries = tape().weights.entries().size();
  b.adjoint.resize(tape().slots.size());
  for (Tensors* each : {&b.in_input, &b.in_more, &b.totals}) each->resize(operations);
  b.in_weight.resize(entries);
  head(b, &f);
  for (size_t i = operations; i-- > 0;) backward(i, b, &f, wanted);
  branches_.join_all();
  kept_.clear();
  return collect(b, wanted);
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
                                    const LabelledImages& images) {
  if (w.scalar_type() == at::kDouble) return std::make_unique<Point<double>>(tape, w, mixture, images);
  if (w.scalar_type() == at::kFloat) return std::make_unique<Point<float>>(tape, w, mixture, images);
  throw std::invalid_argument("a tape runs in float or double");
}

}  // namespace bilevel::nas
