#include "bilevel/nas/skeleton201.h"

#include <fmt/format.h>

#include "bilevel/nas/operations.h"

namespace bilevel::nas {
namespace {

Feature residual_block(Pass& pass, const Feature& x, int64_t outputs) {
  const Feature a = relu_convolve_normalize(pass, x, {.outputs = outputs, .stride = 2}, true);
  const Feature b = relu_convolve_normalize(pass, a, {.outputs = outputs}, true);
  const Feature shortcut = pass.convolve(average_pairs(x), {.outputs = outputs, .kernel = 1});
  return add(shortcut, b);
}

}  // namespace

Feature walk_skeleton201(Pass& pass, const Skeleton201& skeleton, const Feature& images,
                         const std::function<Feature(const Feature&)>& cell) {
  pass.enter("stem");
  Feature x = pass.normalize(pass.convolve(images, {.outputs = skeleton.channels}), true);
  for (int64_t stage = 0; stage < 3; ++stage) {
    if (stage > 0) {
      pass.enter(fmt::format("reduction {}", stage));
      x = residual_block(pass, x, skeleton.channels << stage);
    }
    for (int64_t c = 0; c < skeleton.cells; ++c) {
      pass.enter(fmt::format("stage {} cell {}", stage + 1, c + 1));
      x = cell(x);
    }
  }
  pass.enter("head");
  return pass.linear(global_pool(relu(pass.normalize(x, true))), skeleton.classes);
}

}  // namespace bilevel::nas
