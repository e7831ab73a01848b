// What is captured as CUDA graphs, against the same without. On the CPU nothing is captured, but the
// functions are the same.

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bilevel/core/finite.h"
#include "bilevel/core/role_swap.h"
#include "bilevel/nas/captured_supernet.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/training_pass.h"
#include "tests/nas/cudnn_setting.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::relative_error;

SupernetProblem small_problem(const std::string& space, const at::TensorOptions& tensors,
                              int64_t partial = 1) {
  SupernetOptions options;
  options.channels = partial > 1 ? 8 : 2;
  options.cells = space == "darts" ? 2 : 1;
  options.height = options.width = 8;
  options.partial = partial;
  const auto images = [&](uint64_t seed) {
    return image_source(draw_images({.samples = 12, .seed = seed}, tensors));
  };
  return {Supernet(make_space(space), options), images(1), images(2), tensors};
}

// The same functions at other points, on other batches and with another mixture each time.
void expect_the_same(SupernetProblem& plain, const at::TensorOptions& tensors, double near, bool tape) {
  const auto captured = capture_supernet(plain, 4, tape);
  Oracle a(*captured), b(plain);
  const NoWaiting nothing_is_read(a.finite());
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Tensor w = plain.initial_inner(seed),
                 x = test::random_like(plain.initial_outer(seed).cpu(), seed).to(tensors),
                 u = test::random_like(x.cpu(), 4).to(tensors), v = test::random_like(w.cpu(), 9).to(tensors);
    const Batch batch{at::arange(4) + static_cast<int64_t>(seed), seed};
    // A graph sees what is added to the mixture as it is now.
    plain.set_mixture_shift(0.1 * static_cast<double>(seed) * at::ones_like(x));
    EXPECT_LT(relative_error(a.inner_gradient(w, x, batch), b.inner_gradient(w, x, batch)), near);
    EXPECT_LT(relative_error(captured->inner_gradient_at(w, x, batch), plain.inner_gradient_at(w, x, batch)),
              near);
    const auto here = a.linearize(w, x, batch), there = b.linearize(w, x, batch);
    const Batch other{at::arange(4) + 6, seed + 7};
    const auto elsewhere = a.linearize(w, x, other);
    const Tensor first = here->hessian(v);
    EXPECT_LT(relative_error(first, there->hessian(v)), near);
    EXPECT_GT(relative_error(elsewhere->hessian(v), first), 1e-3);
    EXPECT_LT(relative_error(here->hessian(v + w), there->hessian(v + w)), near);
    EXPECT_LT(relative_error(here->gradient(), there->gradient()), near);
    EXPECT_LT(relative_error(here->gauss_newton(v), there->gauss_newton(v)), near);
    // A batch of another size goes another way.
    const Batch larger{at::arange(7), seed};
    EXPECT_LT(relative_error(a.inner_gradient(w, x, larger), b.inner_gradient(w, x, larger)), near);
    if (!plain.inner_loss_uses_outer()) continue;
    EXPECT_LT(relative_error(a.inner_gradient_in_outer(w, x, batch), b.inner_gradient_in_outer(w, x, batch)),
              near);
    const OuterGradients f = a.outer_gradients(w, x, batch), g = b.outer_gradients(w, x, batch);
    EXPECT_LT(relative_error(f.w, g.w), near);
    EXPECT_LT(relative_error(f.x, g.x), near);
    EXPECT_LT(relative_error(f.loss, g.loss), near);
    const OuterGradients in_alpha = a.outer_gradient_in_outer(w, x, batch);
    EXPECT_LT(relative_error(in_alpha.x, g.x), near);
    EXPECT_LT(relative_error(in_alpha.loss, g.loss), near);
    EXPECT_LT(relative_error(here->cross(v), there->cross(v)), near);
    const auto both = here->hessian_and_cross(v), expected = there->hessian_and_cross(v);
    EXPECT_LT(relative_error(both.first, expected.first), near);
    EXPECT_LT(relative_error(both.second, expected.second), near);
    EXPECT_LT(relative_error(here->cross_transposed(u), there->cross_transposed(u)), near);
    const MatrixProduct curvature = captured->outer_curvature(w, x, batch);
    const bool taped = tape && plain.supernet().options().partial == 1;
    EXPECT_EQ(curvature != nullptr, taped);
    if (!curvature) continue;
    const RoleSwap swapped(plain);
    const auto exact = Oracle(swapped).linearize(x, w, batch);
    EXPECT_LT(relative_error(curvature(u), exact->hessian(u)), near);
    EXPECT_LT(relative_error(curvature(x), exact->hessian(x)), near);
    const MatrixProduct next = captured->outer_curvature(w, x, other);
    EXPECT_GT(relative_error(next(x), exact->hessian(x)), 1e-3);
    EXPECT_THROW(curvature(x), std::logic_error) << "it would have been the next one's product";
  }
}

void expect_the_same_in_every_space(const at::TensorOptions& tensors, bool tape) {
  for (const std::string space : {"nasbench201", "darts", "nasbench1shot1-3"}) {
    for (const Sampling sampling :
         {Sampling::softmax, Sampling::gumbel, Sampling::uniform, Sampling::given}) {
      if (!tape && sampling > Sampling::gumbel) continue;  // which lies around what is captured
      SCOPED_TRACE(space + " " + std::to_string(static_cast<int>(sampling)));
      SupernetProblem plain = small_problem(space, tensors);
      plain.set_sampling(sampling, 3);
      if (sampling == Sampling::given) {
        plain.set_mixture(test::random_like(plain.initial_outer(1).cpu(), 4).to(tensors));
      }
      expect_the_same(plain, tensors, 1e-10, tape);
    }
  }
  // Partial channels have no tape.
  SupernetProblem partial = small_problem("nasbench201", tensors, 4);
  expect_the_same(partial, tensors, 1e-10, tape);
}

TEST(CapturedSupernet, GivesWhatTheSupernetGives) { expect_the_same_in_every_space(test::doubles(), true); }

TEST(CapturedSupernet, GivesItWithoutATape) { expect_the_same_in_every_space(test::doubles(), false); }

TEST(CapturedSupernet, GivesItOnAGpu) {
  if (!can_capture()) GTEST_SKIP() << "CUDA graphs need a GPU and a LibTorch with CUDA";
  for (const bool tape : {true, false}) {
    expect_the_same_in_every_space(test::doubles().device(at::kCUDA), tape);
  }
}

TEST(Captured, AFunctionThatThrowsLeavesNoCaptureOpen) {
  if (!can_capture()) GTEST_SKIP() << "CUDA graphs need a GPU and a LibTorch with CUDA";
  const auto gpu = test::doubles().device(at::kCUDA);
  int calls = 0;
  Captured twice(
      [&](const std::vector<Tensor>& in) {
        Tensor result = in[0] * 2;
        if (++calls == 4) throw std::runtime_error("the captured call");
        return std::vector<Tensor>{result};
      },
      gpu);
  const Tensor three = at::full({5}, 3, gpu);
  EXPECT_THROW(twice({three}), std::runtime_error);
  EXPECT_EQ(three.sum().item<double>(), 15) << "the stream still records";
  EXPECT_EQ(twice({three})[0].sum().item<double>(), 30);
}

// Every way to a gradient against automatic differentiation in double precision on the CPU.
struct TrainingCase {
  std::string space, genotype;
  bool taped;
  TrainingLoss loss = {};
  double drop_path = 0;
};

const std::vector<TrainingCase>& training_cases() {
  const std::string
      conv = "|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|skip_connect~0|avg_pool_3x3~1|none~2|",
      no_weights = "|skip_connect~0|+|avg_pool_3x3~0|none~1|+|none~0|none~1|avg_pool_3x3~2|",
      unread = "|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|skip_connect~0|none~1|none~2|",
      unreached = "|none~0|+|nor_conv_3x3~0|none~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
      darts =
          "normal: (sep_conv_3x3,0)(skip_connect,1) (sep_conv_3x3,0)(dil_conv_3x3,1) "
          "(avg_pool_3x3,1)(skip_connect,0) (skip_connect,0)(dil_conv_3x3,2) "
          "reduce: (max_pool_3x3,0)(sep_conv_3x3,1) (skip_connect,2)(max_pool_3x3,1) "
          "(max_pool_3x3,0)(skip_connect,2) (skip_connect,2)(max_pool_3x3,1)";
  static const std::vector<TrainingCase> all = {
      {"nasbench201", conv, true},
      {"nasbench201", no_weights, true},
      {"nasbench201", unread, true},
      {"nasbench201", unreached, false},
      {"nasbench201", conv, false, {.label_smoothing = 0.1}},
      {"darts", darts, false, {.label_smoothing = 0.1, .auxiliary = 0.4}, 0.3},
  };
  return all;
}

TEST(TrainingPass, TakesNoTapeForABatchBeyondItsNumbers) {
  const SearchSpace space = make_space("nasbench201");
  NetworkOptions options{.channels = 4, .cells = 1};
  options.height = options.width = 32;
  const Network network(space, parse_genotype(space, training_cases()[0].genotype), options);
  const int64_t largest = (int64_t{1} << 31) / (4 * 32 * 32);  // images of 4 channels: 2^31 numbers
  EXPECT_FALSE(TrainingPass(network, {}, largest, test::doubles()).taped());
  EXPECT_TRUE(TrainingPass(network, {}, largest - 1, test::doubles()).taped());
}

void expect_the_same_training(const at::TensorOptions& tensors, double near) {
  for (const TrainingCase& c : training_cases()) {
    SCOPED_TRACE(c.genotype);
    const SearchSpace space = make_space(c.space);
    NetworkOptions options{.channels = 4, .cells = c.space == "darts" ? 3 : 1};
    options.height = options.width = 9;
    options.auxiliary = c.loss.auxiliary > 0;
    const Network network(space, parse_genotype(space, c.genotype), options);
    const TrainingPass ours(network, c.loss, 6, tensors);
    EXPECT_EQ(ours.taped(), c.taped);
    const auto cpu = [](const Tensor& t) { return t.to(at::kCPU, at::kDouble); };
    Tensor w = network.plan().initial_weights(1, test::doubles()),
           statistics = network.plan().initial_statistics(test::doubles()),
           running = statistics.clone().to(tensors);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const LabelledImages images =
          draw_images({.samples = 6, .height = 9, .width = 9, .seed = seed}, test::doubles());
      PassOptions pass{.norm = Norm::remember, .statistics = statistics};
      if (c.drop_path > 0) pass.kept = draw_kept(network.plan(), 6, c.drop_path, seed, test::doubles());
      const TrainingValues right = differentiate(network, c.loss, w, images, pass);
      const TrainingValues values =
          ours(w.to(tensors), running, {images.images.to(tensors), images.labels.to(tensors.device())},
               pass.kept.defined() ? pass.kept.to(tensors) : Tensor());
      EXPECT_LT(relative_error(cpu(values.loss), right.loss), near);
      EXPECT_LT(relative_error(cpu(values.gradient), right.gradient), near);
      EXPECT_LT(relative_error(cpu(values.statistics), right.statistics), near);
      EXPECT_EQ(values.correct.item<int64_t>(), right.correct.item<int64_t>());
      statistics = right.statistics;
      running = values.statistics;
      w = w + 0.1 * test::random_like(w, seed);
    }
  }
}

TEST(TrainingPass, IsTheDerivativeOfTheNetwork) { expect_the_same_training(test::doubles(), 1e-11); }

TEST(TrainingPass, IsItOnAGpu) {
  if (!can_capture()) GTEST_SKIP() << "CUDA graphs need a GPU and a LibTorch with CUDA";
  expect_the_same_training(test::doubles().device(at::kCUDA), 1e-10);
  // In float convolutions leave channels together, which those in double do not.
  const test::TensorFloat32 full_precision(false);
  expect_the_same_training(test::floats().device(at::kCUDA), 1e-3);
}

}  // namespace
}  // namespace bilevel::nas
