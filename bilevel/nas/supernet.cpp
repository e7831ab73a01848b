#include "bilevel/nas/supernet.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/fields/option_text.h"

namespace bilevel::nas {
int64_t default_search_cells(SpaceKind kind) {
  switch (kind) {
    case SpaceKind::nasbench201:
      return 5;
    case SpaceKind::nasbench1shot1:
      return 9;
    case SpaceKind::darts:
      return 8;
  }
  return 0;
}

std::set<int64_t> reduction_cells(int64_t cells) {
  if (cells < 2) return {};
  if (cells == 2) return {1};
  return {cells / 3, 2 * cells / 3};
}

void SupernetOptions::validate(const SearchSpace& space) const {
  require_at_least("channels", channels, 1);
  if (space.kind == SpaceKind::darts && channels % 2 != 0) {
    throw OptionError(fmt::format("{}: the DARTS space halves channels, so give an even number",
                                  named("channels", fmt::to_string(channels))));
  }
  require_between("cells", cells, 0, 1000);  // each is laid out one by one
  require_at_least("input channels", input_channels, 1);
  require_at_least("image height", height, 1);
  require_at_least("image width", width, 1);
  require_at_least("classes", classes, 2);
  require_at_least("partial channels, one in", partial, 1);
  // A reduction of DARTS halves what goes through the operations once more.
  const int64_t unit = partial * (space.kind == SpaceKind::darts && partial > 1 ? 2 : 1);
  if (channels % unit != 0) {
    throw OptionError(fmt::format(
        "{}: {} sends one channel in {} through the operations, so give a multiple of {}, or another {}",
        named("channels", fmt::to_string(channels)), named("guard", "partial-channels"), partial, unit,
        named("guard_strength")));
  }
}

Supernet::Supernet(SearchSpace space, const SupernetOptions& options)
    : space_(options.partial > 1 ? with_input_shares(std::move(space)) : std::move(space)),
      options_(options) {
  options_.validate(space_);
  if (options_.cells == 0) options_.cells = default_search_cells(space_.kind);
  Pass pass(plan_);
  walk(pass, {{}, options_.input_channels, options_.height, options_.width}, {});
}

Feature Supernet::walk(Pass& pass, const Feature& images, const Tensor& mixture) const {
  switch (space_.kind) {
    case SpaceKind::nasbench201:
      return walk_nasbench201(pass, space_, options_, images, mixture);
    case SpaceKind::nasbench1shot1:
      return walk_nasbench1shot1(pass, space_, options_, images, mixture);
    case SpaceKind::darts:
      return walk_darts(pass, space_, options_, images, mixture);
  }
  throw std::logic_error("Supernet: a space of unknown kind");
}

Tensor Supernet::logits(const Tensor& w, const Tensor& mixture, const Tensor& images,
                        const std::shared_ptr<NormSums>& norms) const {
  PassOptions pass_options;
  pass_options.merged = options_.merged;
  pass_options.norms = norms;
  Pass pass(plan_, w, pass_options);
  return walk(pass, {images, options_.input_channels, options_.height, options_.width}, mixture).value;
}

}  // namespace bilevel::nas
