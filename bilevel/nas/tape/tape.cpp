#include "bilevel/nas/tape/tape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <utility>

namespace bilevel::nas {

std::optional<Tape> record(const Supernet& supernet) {
  const SupernetOptions& options = supernet.options();
  if (supernet.space().kind != SpaceKind::nasbench201 || !options.merged || options.partial > 1) {
    return std::nullopt;
  }
  return record_nasbench201(supernet);
}

TapeWriter::TapeWriter(const Supernet& supernet, int64_t channels, int64_t height, int64_t width) {
  tape_.weights = supernet.plan().weights;
  tape_.choices = static_cast<size_t>(supernet.space().alpha_size());
  add({channels, height, width});
}

size_t TapeWriter::weight(const std::vector<int64_t>& shape) {
  if (next_weight_ >= tape_.weights.entries().size() ||
      tape_.weights.entries()[next_weight_].shape != shape) {
    throw std::logic_error(fmt::format("the tape's weight {} of shape {} is not the supernet's", next_weight_,
                                       fmt::join(shape, " x ")));
  }
  return next_weight_++;
}

size_t TapeWriter::add(const Tape::Slot& slot) {
  tape_.slots.push_back(slot);
  return tape_.slots.size() - 1;
}

size_t TapeWriter::convolve(size_t in, bool rectified, int64_t outputs, int64_t kernel, int64_t stride) {
  const Tape::Slot from = slot(in);
  if (rectified) tape_.slots[in].rectified = true;
  const int64_t padding = (kernel - 1) / 2;
  const size_t out = add({outputs, (from.height + stride - 1) / stride, (from.width + stride - 1) / stride});
  tape_.operations.push_back(Tape::Convolve{.in = in,
                                            .out = out,
                                            .rectified = rectified,
                                            .weight = weight({outputs, from.channels, kernel, kernel}),
                                            .form = {.stride = stride, .padding = padding}});
  return out;
}

size_t TapeWriter::pool(size_t in) {
  Tape::Slot shape = slot(in);
  shape.rectified = false;
  const size_t out = add(shape);
  tape_.operations.push_back(Tape::Pool{.in = in, .out = out});
  return out;
}

size_t TapeWriter::pairs(size_t in) {
  const Tape::Slot from = slot(in);
  const size_t out = add({from.channels, (from.height + 1) / 2, (from.width + 1) / 2});
  tape_.operations.push_back(Tape::Pairs{.in = in, .out = out});
  return out;
}

size_t TapeWriter::mix(int64_t channels, Tape::Mix terms) {
  const Tape::Slot& like = slot(terms.norms.empty() ? terms.plains.at(0).slot : terms.norms[0].slot);
  terms.out = add({channels, like.height, like.width});
  tape_.operations.emplace_back(std::move(terms));
  return tape_.slots.size() - 1;
}

Tape::NormTerm TapeWriter::learned_norm(size_t slot_of) {
  const int64_t channels = slot(slot_of).channels;
  const size_t scale = weight({channels}), shift = weight({channels});
  return {.slot = slot_of, .scale = scale, .shift = shift};
}

Tape TapeWriter::finish(size_t last, int64_t classes) {
  tape_.slots[last].rectified = true;
  tape_.last = last;
  tape_.linear = weight({classes, slot(last).channels});
  tape_.bias = weight({classes});
  if (next_weight_ != tape_.weights.entries().size()) {
    throw std::logic_error(fmt::format("the tape has {} of the supernet's {} weights", next_weight_,
                                       tape_.weights.entries().size()));
  }
  return std::move(tape_);
}

}  // namespace bilevel::nas
