#include "bilevel/nas/guards/auxiliary_skip.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/fields/option_text.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

AuxiliarySkip::AuxiliarySkip(const Problem& engine, SupernetProblem& supernet, double strength)
    : Guard(engine), supernet_(supernet), strength_(strength) {
  const SearchSpace& space = supernet.supernet().space();
  const auto skip = std::find(space.operations.begin(), space.operations.end(), "skip_connect");
  if (skip == space.operations.end()) {
    throw OptionError(
        fmt::format("{}: among the operations of {} ({}) there is no skip_connect that it "
                    "could stand beside; take another guard, or none",
                    named("guard", "auxiliary-skip"), space.name, fmt::join(space.operations, ", ")));
  }
  skips_ = at::zeros_like(supernet.initial_outer(0));
  for (const AlphaBlock& block : space.alpha) {
    space.block(skips_, block.name).select(1, skip - space.operations.begin()).fill_(1);
  }
  supernet_.set_mixture_shift(at::zeros_like(skips_));
}

AuxiliarySkip::~AuxiliarySkip() { supernet_.set_mixture_shift({}); }

double AuxiliarySkip::set_epoch(const SearchTime& now) {
  const double factor =
      strength_ * static_cast<double>(now.epochs - now.epoch) / static_cast<double>(now.epochs);
  supernet_.set_mixture_shift(factor * skips_);
  return factor;
}

}  // namespace bilevel::nas
