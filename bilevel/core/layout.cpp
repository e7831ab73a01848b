#include "bilevel/core/layout.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace bilevel {
namespace {

std::string text(at::IntArrayRef shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

}  // namespace

int64_t Layout::add(std::string name, std::vector<int64_t> shape) {
  for (const Entry& entry : entries_) {
    if (entry.name == name) {
      throw std::invalid_argument(
          fmt::format("Layout::add: the name '{}' is taken, by an entry of shape {}; names "
                      "must be unique",
                      name, text(entry.shape)));
    }
  }
  int64_t size = 1;  // of a scalar, whose shape is empty
  bool fits = true;
  for (const int64_t length : shape) {
    if (length < 0) {
      throw std::invalid_argument(fmt::format(
          "Layout::add: entry '{}' has shape {}; every length must be at least 0", name, text(shape)));
    }
    fits = fits && !__builtin_mul_overflow(size, length, &size);
  }
  int64_t total = 0;
  if (!fits || __builtin_add_overflow(size_, size, &total)) {
    throw std::invalid_argument(fmt::format(
        "Layout::add: entry '{}' of shape {} makes more elements than 64 bits can count", name, text(shape)));
  }
  entries_.push_back({std::move(name), std::move(shape), size, size_});
  sizes_.push_back(size);
  size_ = total;
  return static_cast<int64_t>(entries_.size()) - 1;
}

int64_t Layout::find(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) {
    std::vector<std::string> names;
    names.reserve(entries_.size());
    for (const Entry& entry : entries_) names.push_back(entry.name);
    throw std::invalid_argument(fmt::format("Layout::find: there is no entry '{}'; the {} entries are: {}",
                                            name, names.size(), fmt::join(names, ", ")));
  }
  return found - entries_.begin();
}

std::vector<Tensor> Layout::split(const Tensor& flat) const {
  if (!flat.defined() || flat.dim() != 1 || flat.size(0) != size_) {
    throw std::invalid_argument(
        fmt::format("Layout::split: expected a flat vector of {} elements ({} entries), got {}", size_,
                    entries_.size(), flat.defined() ? "shape " + text(flat.sizes()) : "an undefined tensor"));
  }
  if (entries_.empty()) return {};
  std::vector<Tensor> pieces = flat.split_with_sizes(sizes_);
  for (size_t i = 0; i < pieces.size(); ++i) {
    // A piece is a vector already: a view of a vector would only add a node to the graph.
    if (entries_[i].shape.size() != 1) pieces[i] = pieces[i].view(entries_[i].shape);
  }
  return pieces;
}

Tensor Layout::flatten(const std::vector<Tensor>& tensors) const {
  if (tensors.size() != entries_.size()) {
    throw std::invalid_argument(fmt::format("Layout::flatten: expected {} tensors, one per entry, got {}",
                                            entries_.size(), tensors.size()));
  }
  std::vector<Tensor> pieces;
  pieces.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const Entry& entry = entries_[i];
    if (!tensor.defined() || tensor.sizes() != at::IntArrayRef(entry.shape)) {
      throw std::invalid_argument(
          fmt::format("Layout::flatten: entry {} ('{}') must have shape {}, got {}", i, entry.name,
                      text(entry.shape), tensor.defined() ? text(tensor.sizes()) : "an undefined tensor"));
    }
    // Concatenation would promote a stray type silently, and the vector would no longer be what was split.
    if (tensor.scalar_type() != tensors[0].scalar_type() || tensor.device() != tensors[0].device()) {
      throw std::invalid_argument(fmt::format(
          "Layout::flatten: entry {} ('{}') is {} on {} but the first is {} on {}; convert one of them", i,
          entry.name, at::toString(tensor.scalar_type()), tensor.device().str(),
          at::toString(tensors[0].scalar_type()), tensors[0].device().str()));
    }
    pieces.push_back(tensor.reshape({-1}));
  }
  return pieces.empty() ? at::empty({0}) : at::cat(pieces);
}

Tensor Layout::repeat_per_entry(const Tensor& per_entry) const {
  const auto count = static_cast<int64_t>(entries_.size());
  if (!per_entry.defined() || per_entry.dim() != 1 || per_entry.size(0) != count) {
    throw std::invalid_argument(
        fmt::format("Layout::repeat_per_entry: expected a vector of {} elements, one per entry, got {}",
                    count, per_entry.defined() ? "shape " + text(per_entry.sizes()) : "an undefined tensor"));
  }
  if (entries_.empty()) return per_entry.clone();
  // Not repeat_interleave: its derivative adds atomically on a GPU, so that two runs differ; here it is a sum
  // each.
  std::vector<Tensor> pieces = per_entry.unbind();
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = pieces[i].expand({sizes_[i]});
  return at::cat(pieces);
}

}  // namespace bilevel
