#include "bilevel/nas/synthetic_supernet.h"

#include <memory>
#include <string_view>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/nas/synthetic_images.h"

namespace bilevel::nas {

SupernetProblem synthetic_supernet(const SyntheticSupernet& o) {
  for (const auto& [option, value] : {std::pair{"images", o.images}, {"image_size", o.image_size}}) {
    require_at_least(option, value, 1);
  }
  const SearchSpace space = make_space(o.space, o.operations);
  SupernetOptions network;
  network.channels = o.channels;
  network.cells = o.cells != 0 ? o.cells : space.kind == SpaceKind::nasbench201 ? 1 : 3;
  network.height = network.width = o.image_size;
  const auto draw = [&](std::string_view side) {
    SyntheticImages images{.samples = o.images, .height = o.image_size, .width = o.image_size};
    images.seed = named_seed(o.seed, side);
    return image_source(draw_images(images, o.tensors));
  };
  return {Supernet(space, network), draw("training"), draw("validation"), o.tensors};
}

const ProblemRow& synthetic_supernet_row() {
  static const ProblemRow row{"supernet", "a small network of architecture search on synthetic images"};
  return row;
}

NamedProblem make_synthetic_supernet(const SyntheticSupernet& o) {
  NamedProblem result;
  result.name = synthetic_supernet_row().name;
  result.problem = std::make_unique<WithWeightDecay>(std::make_unique<SupernetProblem>(synthetic_supernet(o)),
                                                     o.weight_decay);
  result.inner_steps = 20;
  result.inner_rate = 0.025;  // that searches begin with
  // A network's Hessian has negative eigenvalues, on which no series converges. The damping is about a
  // twentieth of the largest eigenvalue, so that each term of a series takes off 5 % of the error.
  result.check.curvature = "gauss-newton";
  result.check.damping = 1;
  result.check.linear_rate_auto = true;
  result.check.solvable = false;
  return result;
}

}  // namespace bilevel::nas
