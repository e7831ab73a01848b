#include "bilevel/nas/tape/tape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <utility>

#include "bilevel/nas/tape/fused.h"

namespace bilevel::nas {

std::optional<Tape> record(const Supernet& supernet) {
  if (!supernet.options().merged || supernet.options().partial > 1) return std::nullopt;
  switch (supernet.space().kind) {
    case SpaceKind::nasbench201:
      return record_nasbench201(supernet);
    case SpaceKind::nasbench1shot1:
      return record_nasbench1shot1(supernet);
    case SpaceKind::darts:
      return record_darts(supernet);
  }
  return std::nullopt;
}

std::optional<Tape> record(const Network& network) {
  if (network.kind() == SpaceKind::nasbench201) return record_nasbench201(network);
  return std::nullopt;
}

std::vector<size_t> learned_norms(const Tape& tape) {
  std::map<size_t, size_t> slot_of_scale;
  for (const Tape::Operation& op : tape.operations) {
    const auto* m = std::get_if<Tape::Mix>(&op);
    if (m == nullptr) continue;
    for (const Tape::NormTerm& term : m->norms) {
      if (term.scale) slot_of_scale[*term.scale] = term.slot;
    }
  }
  std::vector<size_t> slots;
  for (const auto& [scale, slot] : slot_of_scale) slots.push_back(slot);
  return slots;
}

TapeWriter::TapeWriter(Layout weights, int64_t choices, int64_t channels, int64_t height, int64_t width) {
  tape_.weights = std::move(weights);
  tape_.choices = static_cast<size_t>(choices);
  add({channels, height, width});
}

size_t TapeWriter::weight(const std::vector<int64_t>& shape) {
  if (next_weight_ >= tape_.weights.entries().size() ||
      tape_.weights.entries()[next_weight_].shape != shape) {
    throw std::logic_error(fmt::format("the tape's weight {} of shape {} is not the network's", next_weight_,
                                       fmt::join(shape, " x ")));
  }
  return next_weight_++;
}

size_t TapeWriter::add(const Tape::Slot& slot) {
  tape_.slots.push_back(slot);
  return tape_.slots.size() - 1;
}

size_t TapeWriter::convolve(size_t in, bool rectified, int64_t outputs, const Kernel& kernel) {
  const Tape::Slot from = slot(in);
  if (rectified) tape_.slots[in].rectified = true;
  const size_t out = add({outputs, (from.height + kernel.stride - 1) / kernel.stride,
                          (from.width + kernel.stride - 1) / kernel.stride});
  tape_.operations.push_back(
      Tape::Convolve{.in = in,
                     .out = out,
                     .rectified = rectified,
                     .weight = weight({outputs, from.channels / kernel.groups, kernel.size, kernel.size}),
                     .form = {.stride = kernel.stride,
                              .padding = kernel.dilation * (kernel.size - 1) / 2,
                              .dilation = kernel.dilation,
                              .groups = kernel.groups}});
  return out;
}

size_t TapeWriter::depthwise(size_t in, bool rectified, int64_t copies, const Kernel& kernel) {
  if (kernel.size != 3 && kernel.size != 5)
    throw std::logic_error("a depthwise convolution has a kernel of 3 or 5");
  const Tape::Slot from = slot(in);
  if (rectified) tape_.slots[in].rectified = true;
  const size_t out = add({copies * from.channels, (from.height + kernel.stride - 1) / kernel.stride,
                          (from.width + kernel.stride - 1) / kernel.stride});
  tape_.operations.push_back(
      Tape::Depthwise{.in = in,
                      .out = out,
                      .rectified = rectified,
                      .weight = weight({copies * from.channels, 1, kernel.size, kernel.size}),
                      .form = {.stride = kernel.stride,
                               .padding = kernel.dilation * (kernel.size - 1) / 2,
                               .dilation = kernel.dilation}});
  return out;
}

size_t TapeWriter::pool(size_t in, int64_t stride) {
  const Tape::Slot from = slot(in);
  const size_t out =
      add({from.channels, (from.height + stride - 1) / stride, (from.width + stride - 1) / stride});
  if (stride == 1) {
    tape_.operations.push_back(Tape::Pool{.in = in, .out = out});
  } else {
    tape_.operations.push_back(
        Tape::AveragePool{.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1});
  }
  return out;
}

size_t TapeWriter::pairs(size_t in) {
  const Tape::Slot from = slot(in);
  const size_t out = add({from.channels, (from.height + 1) / 2, (from.width + 1) / 2});
  tape_.operations.push_back(Tape::AveragePool{.in = in, .out = out, .whole = true});
  return out;
}

size_t TapeWriter::max_pool(size_t in, int64_t kernel, int64_t stride, int64_t padding) {
  const Tape::Slot from = slot(in);
  const auto pooled = [&](int64_t size) { return (size + 2 * padding - kernel) / stride + 1; };
  const size_t out = add({from.channels, pooled(from.height), pooled(from.width)});
  tape_.operations.push_back(
      Tape::MaxPool{.in = in, .out = out, .kernel = kernel, .stride = stride, .padding = padding});
  return out;
}

size_t TapeWriter::shift(size_t in) {
  tape_.slots[in].rectified = true;
  const Tape::Slot from = slot(in);
  const size_t out = add({from.channels, from.height - 1 + from.height % 2, from.width - 1 + from.width % 2});
  tape_.operations.push_back(Tape::Shift{.in = in, .out = out});
  return out;
}

size_t TapeWriter::concatenate(std::vector<Tape::Concatenate::Part> parts) {
  const Tape::Slot like = slot(parts.at(0).slot);
  int64_t channels = 0;
  for (const auto& part : parts) channels += part.channels;
  const size_t out = add({channels, like.height, like.width});
  tape_.operations.emplace_back(Tape::Concatenate{.parts = std::move(parts), .out = out});
  return out;
}

size_t TapeWriter::concatenate_all(const std::vector<size_t>& slots) {
  std::vector<Tape::Concatenate::Part> parts;
  for (const size_t s : slots) parts.push_back({.slot = s, .channel = 0, .channels = slot(s).channels});
  return concatenate(std::move(parts));
}

// More terms than a kernel takes become several sums, each a term of the next.
size_t TapeWriter::mix(int64_t channels, Tape::Mix terms) {
  const Tape::Slot like = slot(terms.norms.empty() ? terms.plains.at(0).slot : terms.norms[0].slot);
  const auto write = [&](Tape::Mix sum) {
    sum.out = add({channels, like.height, like.width});
    tape_.operations.emplace_back(std::move(sum));
    return tape_.slots.size() - 1;
  };
  constexpr auto most_norms = static_cast<size_t>(fused::most_norms),
                 most_plains = static_cast<size_t>(fused::most_plains);
  while (terms.norms.size() > most_norms || terms.plains.size() > most_plains) {
    Tape::Mix part;
    const auto take = [](auto& from, size_t most, auto& to) {
      const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size()));
      to.assign(from.begin(), end);
      from.erase(from.begin(), end);
    };
    take(terms.norms, most_norms, part.norms);
    take(terms.plains, most_plains, part.plains);
    terms.plains.insert(terms.plains.begin(), Tape::PlainTerm{.slot = write(std::move(part))});
  }
  return write(std::move(terms));
}

size_t TapeWriter::normed(size_t slot_of) {
  return mix(slot(slot_of).channels, {.norms = {{.slot = slot_of}}});
}

size_t TapeWriter::learned(size_t slot_of) {
  return mix(slot(slot_of).channels, {.norms = {learned_norm(slot_of)}});
}

Tape::PlainTerm TapeWriter::rectified(size_t slot_of, std::optional<size_t> choice) {
  tape_.slots[slot_of].rectified = true;
  return {.slot = slot_of, .choice = choice, .rectified = true};
}

Tape::NormTerm TapeWriter::learned_norm(size_t slot_of) {
  const int64_t channels = slot(slot_of).channels;
  const size_t scale = weight({channels}), shift = weight({channels});
  return {.slot = slot_of, .scale = scale, .shift = shift};
}

size_t TapeWriter::first_choice(const SearchSpace& space, std::string_view block) {
  int64_t first = 0;
  for (const AlphaBlock& b : space.alpha) {
    if (b.name == block) return static_cast<size_t>(first);
    first += b.rows * b.choices;
  }
  throw std::logic_error(fmt::format("the space {} has no block {}", space.name, block));
}

Tape TapeWriter::finish(size_t last, bool rectified, int64_t classes) {
  if (rectified) tape_.slots[last].rectified = true;
  tape_.last = last;
  tape_.last_rectified = rectified;
  tape_.linear = weight({classes, slot(last).channels});
  tape_.bias = weight({classes});
  if (next_weight_ != tape_.weights.entries().size()) {
    throw std::logic_error(fmt::format("the tape has {} of the network's {} weights", next_weight_,
                                       tape_.weights.entries().size()));
  }
  return std::move(tape_);
}

}  // namespace bilevel::nas
