#include "bilevel/nas/tape/forward_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <variant>

#include "bilevel/fields/option_text.h"
#include "bilevel/nas/tape/channels_last.h"
#include "bilevel/nas/tape/place.h"

namespace bilevel::nas {
namespace {

Tensor last_channels(const Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); }

}  // namespace

template <typename T>
ForwardPass<T>::ForwardPass(const TapeOnDevice& on, const Tensor& w, const Tensor& mixture,
                            const Tensor& images, const BatchShare& share)
    : on_(on),
      options_(w.options().requires_grad(false)),
      images_(images.size(0)),
      share_(share),
      readers_(on.tape.slots.size()),
      forks_(on.tape.slots.size()),
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
  find_readers();
  find_forks();
  f_ = start(w.detach(), mixture.detach());
  f_.value[0] = last_channels(images);
  run(f_, false);
}

template <typename T>
ForwardValues ForwardPass<T>::tangent(const Tensor& w_dot, const Tensor& mixture_dot) {
  ForwardValues f = start(w_dot, mixture_dot);
  run(f, true);
  return f;
}

template <typename T>
void ForwardPass<T>::find_readers() {
  for (size_t i = 0; i < tape().operations.size(); ++i) {
    const Tape::Operation& op = tape().operations[i];
    if (const auto* m = std::get_if<Tape::Mix>(&op)) {
      for (const Tape::NormTerm& term : m->norms) readers_[term.slot].normed = true;
      for (const Tape::PlainTerm& term : m->plains) {
        readers_[term.slot].mixes.push_back({m->out, term.choice, term.rectified});
      }
    } else if (const auto* parts = std::get_if<Tape::Concatenate>(&op)) {
      for (const auto& part : parts->parts) readers_[part.slot].operations.push_back(i);
    } else {
      std::visit(
          [&](const auto& any) {
            if constexpr (requires { any.in; }) readers_[any.in].operations.push_back(i);
          },
          op);
    }
  }
}

// Convolutions and pools of one slot, one after the other, are independent. Forwards all but the last run
// beside it; backwards, where the last comes first, it is what the others run beside, if it is a large one.
// Nobody but norms and mixes, which wait, may read what is made so.
template <typename T>
void ForwardPass<T>::find_forks() {
  const auto& operations = tape().operations;
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    const auto* pool = std::get_if<Tape::Pool>(&operations[i]);
    const auto* small = std::get_if<Tape::Convolve>(&operations[i]);
    const auto* next = std::get_if<Tape::Convolve>(&operations[i + 1]);
    if (next == nullptr || (pool == nullptr && small == nullptr)) continue;
    if ((pool != nullptr ? pool->in : small->in) != next->in) continue;
    const size_t out = pool != nullptr ? pool->out : small->out;
    forks_[out].forward = readers_[out].operations.empty();
    forks_[next->out].backward = tape().weights.entries()[next->weight].shape[2] > 1;
  }
}

template <typename T>
void ForwardPass<T>::run(ForwardValues& f, bool tangent) {
  for (const Tape::Operation& op : tape().operations) {
    std::visit([&](const auto& any) { run(any, f, tangent); }, op);
  }
  branches_.join_all();
  end(f, tangent);
}

template <typename T>
void ForwardPass<T>::end(ForwardValues& f, bool tangent) const {
  const size_t last = tape().last;
  f.features = (tape().last_rectified ? f.rectified[last] : f.value[last]).mean({2, 3});
  const Tensor& weights = f_.weights[tape().linear];
  if (!tangent) {
    f.logits = at::linear(f.features, weights, f_.weights[tape().bias]);
    return;
  }
  f.logits = at::mm(f.features, weights.t());
  if (!f.packed.defined()) return;
  f.logits.addmm_(f_.features, f.weights[tape().linear].t()).add_(f.weights[tape().bias]);
}

template <typename T>
ForwardValues ForwardPass<T>::start(const Tensor& w, const Tensor& mixture) const {
  ForwardValues f;
  for (Tensors* each : {&f.value, &f.rectified, &f.more, &f.beside_value, &f.beside_rectified, &f.mean,
                        &f.inverse, &f.index}) {
    each->resize(tape().slots.size());
  }
  if (w.defined()) {
    f.packed = w.index_select(0, on_.to_packed);
    f.weights = split(f.packed);
  }
  if (mixture.defined()) f.mixture = mixture.contiguous();
  return f;
}

template <typename T>
std::vector<Tensor> ForwardPass<T>::split(const Tensor& packed) const {
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
Tensor ForwardPass<T>::empty(size_t slot) const {
  const Tape::Slot& s = tape().slots[slot];
  return at::empty({images_, s.channels, s.height, s.width},
                   options_.memory_format(at::MemoryFormat::ChannelsLast));
}

template <typename T>
fused::Shape ForwardPass<T>::shape(size_t slot) const {
  const Tape::Slot& s = tape().slots[slot];
  return {static_cast<int>(images_), static_cast<int>(s.height), static_cast<int>(s.width),
          static_cast<int>(s.channels)};
}

template <typename T>
const T* ForwardPass<T>::choice(const ForwardValues& f, const std::optional<size_t>& index) const {
  return index && f.mixture.defined() ? data<T>(f.mixture) + *index : nullptr;
}

template <typename T>
const T* ForwardPass<T>::learned(const ForwardValues& f, const Tape::NormTerm& term,
                                 const std::optional<size_t>& index) const {
  return index && f.packed.defined() ? data<T>(f.weights[*index]) + term.channel : nullptr;
}

template <typename T>
fused::Node<T> ForwardPass<T>::node(const Tape::Mix& mix, const ForwardValues* dot) const {
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
    norm.gain = term.choice ? choice(f_, term.choice) : learned(f_, term, term.scale);
    norm.gain_step = term.choice ? 0 : 1;
    norm.shift = learned(f_, term, term.shift);
    if (dot == nullptr) continue;
    norm.z_dot = data<T>(dot->value[term.slot]) + term.channel;
    if (dot->more[term.slot].defined()) norm.z_dot_more = data<T>(dot->more[term.slot]) + term.channel;
    norm.mean_dot = data<T>(dot->mean[term.slot]) + term.channel;
    norm.moment = data<T>(dot->inverse[term.slot]) + term.channel;
    norm.gain_dot = term.choice ? choice(*dot, term.choice) : learned(*dot, term, term.scale);
    norm.shift_dot = learned(*dot, term, term.shift);
  }
  for (size_t i = 0; i < mix.plains.size(); ++i) {
    const Tape::PlainTerm& term = mix.plains[i];
    fused::Plain<T>& plain = node.plain[i];
    plain.x = data<T>(term.rectified ? f_.rectified[term.slot] : f_.value[term.slot]);
    plain.gain = choice(f_, term.choice);
    if (dot == nullptr) continue;
    plain.x_dot = data<T>(term.rectified ? dot->rectified[term.slot] : dot->value[term.slot]);
    plain.gain_dot = choice(*dot, term.choice);
  }
  return node;
}

// The statistics of what is normed for the first time, tensors of one shape in one go.
template <typename T>
void ForwardPass<T>::statistics(const std::vector<Tape::NormTerm>& norms, ForwardValues& f, bool tangent) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<size_t>> groups;
  std::vector<size_t> found;
  for (const Tape::NormTerm& term : norms) {
    if (f.mean[term.slot].defined()) continue;
    const Tape::Slot& s = tape().slots[term.slot];
    f.mean[term.slot] = at::empty({s.channels}, options_);
    f.inverse[term.slot] = at::empty({s.channels}, options_);
    groups[{s.channels, s.height, s.width}].push_back(term.slot);
    found.push_back(term.slot);
  }
  for (const auto& group : groups) {
    const std::vector<size_t>& slots = group.second;
    for (size_t first = 0; first < slots.size(); first += fused::most_tensors) {
      const size_t end = std::min(slots.size(), first + fused::most_tensors);
      fused::Statistics<T> work{};
      work.shape = shape(slots[first]);
      work.tensors = static_cast<int>(end - first);
      work.epsilon = norm_epsilon;
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
      RECORD_USER_SCOPE("statistics of norms");
      at_place(f_.value[slots[first]], [&](auto place) { fused::statistics(work, tangent, place); });
    }
  }
  if (share_.norms != nullptr && !found.empty()) sum_statistics(found, f, tangent);
}

// Of the whole batch, from those of this rank's images: means of the ranks' means, weighted by their images,
// and of second moments, of which the square of the mean is taken off in double.
template <typename T>
void ForwardPass<T>::sum_statistics(const std::vector<size_t>& slots, ForwardValues& f, bool tangent) {
  Tensors first, second;
  for (const size_t slot : slots) {
    first.push_back(f.mean[slot]);
    second.push_back(f.inverse[slot]);
  }
  Tensor sums = at::stack({at::cat(first), at::cat(second)}).to(at::kDouble);
  const Tensor mean = sums[0], rest = sums[1];
  if (!tangent) rest.copy_(rest.square().reciprocal_().sub_(norm_epsilon).add_(mean.square()));
  sums.mul_(share_.of(images_));
  share_.norms->sum_(sums);
  if (!tangent) rest.sub_(mean.square()).clamp_min_(0).add_(norm_epsilon).rsqrt_();
  sums = sums.to(first.front().scalar_type());
  int64_t at = 0;
  for (const size_t slot : slots) {
    const int64_t channels = tape().slots[slot].channels;
    f.mean[slot] = sums[0].narrow(0, at, channels);
    f.inverse[slot] = sums[1].narrow(0, at, channels);
    at += channels;
  }
}

template <typename T>
void ForwardPass<T>::run(const Tape::Convolve& op, ForwardValues& f, bool tangent) {
  const Tensor& weights = f_.weights[op.weight];
  const Tensor& image = op.rectified ? f_.rectified[op.in] : f_.value[op.in];
  if (!tangent) {
    run_beside(forks_[op.out].forward, [&] { f.value[op.out] = convolved(image, weights, op.form); });
    return;
  }
  const Tensor& image_dot = op.rectified ? f.rectified[op.in] : f.value[op.in];
  if (image_dot.defined() && f.packed.defined() && image.is_cpu() && op.form.groups == 1) {
    // On the CPU one convolution of both images side by side: one result is written, and read, instead of
    // two.
    Tensor& both = (op.rectified ? f.beside_rectified : f.beside_value)[op.in];
    if (!both.defined()) both = last_channels(at::cat({image_dot, image}, 1));
    f.value[op.out] = convolved(both, last_channels(at::cat({weights, f.weights[op.weight]}, 1)), op.form);
    return;
  }
  Tensor by_weights;
  if (f.packed.defined()) {
    branches_.run(beside, [&] { by_weights = convolved(image, f.weights[op.weight], op.form); });
  }
  if (!image_dot.defined()) {  // of the images
    if (!readers_[op.out].only_normed()) branches_.join(beside);
    f.value[op.out] = by_weights.defined() ? by_weights : at::zeros_like(f_.value[op.out]);
    return;
  }
  f.value[op.out] = convolved(image_dot, weights, op.form);
  f.more[op.out] = by_weights;
  if (readers_[op.out].only_normed() || !by_weights.defined()) return;
  branches_.join(beside);  // only norms read the two apart
  f.value[op.out].add_(by_weights);
  f.more[op.out] = Tensor();
}

template <typename T>
fused::Depthwise<T> ForwardPass<T>::depthwise(const Tape::Depthwise& op) const {
  fused::Depthwise<T> work{};
  const fused::Shape out = shape(op.out);
  work.image = shape(op.in);
  work.outputs = out.channels;
  work.height = out.height;
  work.width = out.width;
  work.kernel = static_cast<int>(f_.weights[op.weight].size(2));
  work.stride = static_cast<int>(op.form.stride);
  work.padding = static_cast<int>(op.form.padding);
  work.dilation = static_cast<int>(op.form.dilation);
  work.pairs = 1;
  return work;
}

template <typename T>
void ForwardPass<T>::run(const Tape::Depthwise& op, ForwardValues& f, bool tangent) {
  fused::Depthwise<T> work = depthwise(op);
  f.value[op.out] = empty(op.out);
  work.out = data<T>(f.value[op.out]);
  work.x[0] = data<T>(op.rectified ? f.rectified[op.in] : f.value[op.in]);
  work.weights[0] = data<T>(f_.weights[op.weight]);
  if (tangent && f.packed.defined()) {
    work.pairs = 2;
    work.x[1] = data<T>(op.rectified ? f_.rectified[op.in] : f_.value[op.in]);
    work.weights[1] = data<T>(f.weights[op.weight]);
  }
  RECORD_USER_SCOPE("depthwise convolution");
  at_place(f.value[op.out], [&](auto place) { fused::depthwise(work, place); });
}

template <typename T>
Tensor ForwardPass<T>::pooled(const Tensor& x, bool transposed) {
  const Tensor y = at::empty_like(x);
  fused::Pooling<T> work{};
  work.shape = {static_cast<int>(x.size(0)), static_cast<int>(x.size(2)), static_cast<int>(x.size(3)),
                static_cast<int>(x.size(1))};
  work.x = data<T>(x);
  work.y = data<T>(y);
  work.transposed = transposed;
  RECORD_USER_SCOPE("average pool");
  at_place(x, [&](auto place) { fused::pool(work, place); });
  return y;
}

template <typename T>
void ForwardPass<T>::run(const Tape::Pool& op, ForwardValues& f, bool tangent) {
  run_beside(!tangent && forks_[op.out].forward, [&] { f.value[op.out] = pooled(f.value[op.in], false); });
}

template <typename T>
void ForwardPass<T>::run(const Tape::AveragePool& op, ForwardValues& f, bool /*tangent*/) {
  f.value[op.out] = last_channels(at::avg_pool2d(f.value[op.in], op.kernel, op.stride, op.padding, op.whole,
                                                 /*count_include_pad=*/false));
}

template <typename T>
fused::MaxPooling<T> ForwardPass<T>::max_pooling(const Tape::MaxPool& op) const {
  fused::MaxPooling<T> work{};
  const fused::Shape out = shape(op.out);
  work.image = shape(op.in);
  work.height = out.height;
  work.width = out.width;
  work.kernel = static_cast<int>(op.kernel);
  work.stride = static_cast<int>(op.stride);
  work.padding = static_cast<int>(op.padding);
  work.index = data<int>(f_.index[op.out]);
  return work;
}

template <typename T>
void ForwardPass<T>::run(const Tape::MaxPool& op, ForwardValues& f, bool tangent) {
  f.value[op.out] = empty(op.out);
  if (!tangent) f.index[op.out] = at::empty({f.value[op.out].numel()}, options_.dtype(at::kInt));
  fused::MaxPooling<T> work = max_pooling(op);
  work.x = data<T>(f.value[op.in]);
  work.y = data<T>(f.value[op.out]);
  RECORD_USER_SCOPE("max pool");
  at_place(f.value[op.out],
           [&](auto place) { tangent ? fused::at_largest(work, place) : fused::max_pool(work, place); });
}

template <typename T>
void ForwardPass<T>::run(const Tape::Shift& op, ForwardValues& f, bool /*tangent*/) {
  const Tape::Slot& from = tape().slots[op.in];
  f.value[op.out] =
      last_channels(at::constant_pad_nd(f.rectified[op.in], {-1, from.width % 2, -1, from.height % 2}));
}

template <typename T>
void ForwardPass<T>::run(const Tape::Concatenate& op, ForwardValues& f, bool tangent) {
  Tensors parts;
  for (const auto& part : op.parts)
    parts.push_back(f.value[part.slot].narrow(1, part.channel, part.channels));
  f.value[op.out] = last_channels(at::cat(parts, 1));
  if (!tape().slots[op.out].rectified) return;
  f.rectified[op.out] = tangent ? at::threshold_backward(f.value[op.out], f_.value[op.out], 0)
                                : at::clamp_min(f.value[op.out], 0);
}

template <typename T>
void ForwardPass<T>::run(const Tape::Mix& op, ForwardValues& f, bool tangent) {
  branches_.join(beside);
  statistics(op.norms, f, tangent);
  f.value[op.out] = empty(op.out);
  if (tape().slots[op.out].rectified) f.rectified[op.out] = empty(op.out);
  fused::Mixing<T> work{};
  work.node = node(op, tangent ? &f : nullptr);
  work.y = data<T>(f.value[op.out]);
  work.rectified = data<T>(f.rectified[op.out]);
  work.value = data<T>(f_.value[op.out]);
  RECORD_USER_SCOPE("sums of norms and features");
  at_place(f.value[op.out], [&](auto place) { fused::mix(work, tangent, place); });
}

template class ForwardPass<float>;
template class ForwardPass<double>;

}  // namespace bilevel::nas
