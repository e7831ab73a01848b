#include "bilevel/nas/perturbation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/errors.h"
#include "bilevel/core/random.h"
#include "bilevel/run/not_finite.h"

namespace bilevel::nas {

PerturbationSelection::PerturbationSelection(const SearchSpace& space, const Tensor& alpha, uint64_t seed)
    : space_(space), mixture_(mixture_weights(space, alpha.detach())) {
  Random random(named_seed(seed, "selection"));
  const auto shuffled = [&](const std::vector<Choice>& choices) {
    const Tensor order = random.permutation(static_cast<int64_t>(choices.size()));
    for (int64_t i = 0; i < order.numel(); ++i) {
      order_.push_back(choices[static_cast<size_t>(order[i].item<int64_t>())]);
    }
  };
  std::vector<Choice> operations, edges;
  for (const AlphaBlock& block : space_.alpha) {
    if (block.shares) continue;
    const bool parents = block.name == "output" || block.name.rfind("parents-", 0) == 0;
    if (parents) {
      const size_t node = block.name == "output" ? space_.parents.size() - 1
                                                 : static_cast<size_t>(std::stoll(block.name.substr(8))) - 1;
      Choice choice{.block = block.name};
      choice.keep = space_.parents[node];
      edges.push_back(choice);
      continue;
    }
    for (int64_t row = 0; row < block.rows; ++row) operations.push_back({.block = block.name, .row = row});
    if (space_.kind != SpaceKind::darts) continue;
    int64_t first = 0;
    for (int64_t node = 0; node < space_.nodes; ++node) {
      const int64_t inputs = node + 2;
      if (inputs > 2) {
        const std::string shares = input_shares_name(block.name, node + 1);
        edges.push_back({.block = block.name,
                         .row = first,
                         .rows = inputs,
                         .keep = 2,
                         .thin = true,
                         .shares = space_.has_block(shares) ? shares : ""});
      }
      first += inputs;
    }
  }
  shuffled(operations);
  shuffled(edges);
}

std::vector<int64_t> PerturbationSelection::candidates(const Choice& choice) const {
  const int64_t count = choice.thin ? choice.rows : space_.block(mixture_, choice.block).size(1);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) {
    // A DARTS genotype has no `none`.
    const bool none = !choice.thin && space_.kind == SpaceKind::darts &&
                      space_.operations[static_cast<size_t>(i)] == "none";
    if (!none) all.push_back(i);
  }
  return all;
}

void PerturbationSelection::drop_edge(const Tensor& mixture, const Choice& choice, int64_t edge) const {
  space_.block(mixture, choice.block)[choice.row + edge].zero_();
  if (!choice.shares.empty()) space_.block(mixture, choice.shares)[0][edge].zero_();
}

Tensor PerturbationSelection::without(const Choice& choice, int64_t candidate) const {
  Tensor changed = mixture_.clone();
  if (choice.thin) {
    drop_edge(changed, choice, candidate);
  } else {
    space_.block(changed, choice.block)[choice.row][candidate].zero_();
  }
  return changed;
}

void PerturbationSelection::decide(const Choice& choice, const std::vector<int64_t>& kept) {
  Tensor changed = mixture_.clone();
  Tensor block = space_.block(changed, choice.block);
  const auto is_kept = [&](int64_t i) { return std::find(kept.begin(), kept.end(), i) != kept.end(); };
  if (choice.thin) {
    for (int64_t i = 0; i < choice.rows; ++i) {
      if (!is_kept(i)) drop_edge(changed, choice, i);
    }
  } else {
    for (int64_t i = 0; i < block.size(1); ++i) block[choice.row][i].fill_(is_kept(i) ? 1.0 : 0.0);
  }
  mixture_ = changed;
}

std::string PerturbationSelection::choose_next(const Loss& loss) {
  const Choice& choice = order_.at(next_);
  const std::vector<int64_t> all = candidates(choice);
  std::vector<std::pair<double, int64_t>> missed;  // the loss without it
  for (const int64_t candidate : all) {
    // A supernet that leaves the finite numbers without it misses it most. NaN itself has no place in an
    // order.
    const double found = loss(without(choice, candidate));
    missed.emplace_back(std::isnan(found) ? std::numeric_limits<double>::infinity() : found, candidate);
  }
  if (std::none_of(missed.begin(), missed.end(), [](const auto& one) { return std::isfinite(one.first); })) {
    throw NotFiniteRun(
        fmt::format("{}: at choice {} of {} ({} row {}) no validation loss is finite, whichever operation is "
                    "left out; lower "
                    "{}, or use {}",
                    named("select", "perturbation"), next_ + 1, order_.size(), choice.block, choice.row,
                    named("inner_rate"), named("select", "argmax")));
  }
  std::stable_sort(missed.begin(), missed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<int64_t> kept;
  for (size_t i = 0; i < std::min(missed.size(), static_cast<size_t>(choice.keep)); ++i) {
    kept.push_back(missed[i].second);
  }
  std::sort(kept.begin(), kept.end());
  decide(choice, kept);
  ++next_;
  const bool operation = !choice.thin && choice.block != "output" && choice.block.rfind("parents-", 0) != 0;
  return fmt::format("choice {} of {}: {} row {} keeps {} (loss without it {:.4f})", next_, order_.size(),
                     choice.block, choice.row,
                     operation ? space_.operations[static_cast<size_t>(kept.front())]
                               : fmt::format("{}", fmt::join(kept, " and ")),
                     missed.front().first);
}

Genotype PerturbationSelection::genotype() const {
  if (!done()) throw std::logic_error("PerturbationSelection: there are choices left");
  return derive_genotype(space_, mixture_);
}

}  // namespace bilevel::nas
