// A supernet's tape against automatic differentiation of the plain network, in double: loss, gradients and
// products with second derivatives.

#include "bilevel/nas/tape/tape.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/autograd.h"
#include "bilevel/core/role_swap.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/tape/taped_supernet.h"
#include "tests/nas/cudnn_setting.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::random_like;
using test::relative_error;

struct TapeCase {
  std::vector<std::string> operations;  // empty = all
  int64_t channels, cells, height, width, samples;
  std::string space = "nasbench201";
};

SupernetProblem problem_of(const TapeCase& c, bool merged, const at::TensorOptions& tensors) {
  SupernetOptions options;
  options.channels = c.channels;
  options.cells = c.cells;
  options.height = c.height;
  options.width = c.width;
  options.classes = 4;
  options.merged = merged;
  const auto images = [&](uint64_t seed) {
    return image_source(draw_images(
        {.samples = c.samples, .height = c.height, .width = c.width, .classes = 4, .seed = seed}, tensors));
  };
  return {Supernet(make_space(c.space, c.operations), options), images(1), images(2), tensors};
}

void expect_same_derivatives(const TapeCase& c, const at::TensorOptions& tensors, double near,
                             bool shifted = false, uint64_t seeds = 2) {
  SupernetProblem base = problem_of(c, true, tensors), plain = problem_of(c, false, test::doubles());
  if (shifted) {  // as by an auxiliary skip
    const Tensor shift = random_like(plain.initial_outer(0), 3);
    plain.set_mixture_shift(shift);
    base.set_mixture_shift(shift.to(tensors));
  }
  const auto taped = TapedSupernet::make(base);
  ASSERT_TRUE(taped.has_value());
  const auto cpu = [](const Tensor& t) { return t.to(at::kCPU, at::kDouble); };
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Tensor w0 = plain.initial_inner(seed), x0 = random_like(plain.initial_outer(seed), seed);
    // Scales and shifts that are not their start, which would hide their part.
    const Tensor w = w0 + 0.1 * random_like(w0, 5), u = random_like(x0, 7), v = random_like(w0, 8);
    const auto here = [&](const Tensor& t) { return t.to(tensors); };
    const LabelledImages images = base.train().prepare({});
    const auto theirs = autograd::linearize(plain, w, x0, {});

    const MixturePoint mixture = base.mixture_point(here(x0), 0);
    EXPECT_LT(relative_error(cpu(taped->gradient(here(w), mixture.value, images)), theirs->gradient()), near);
    EXPECT_LT(relative_error(cpu(taped->gradient_in_alpha(here(w), mixture, images)),
                             autograd::inner_gradient_in_outer(plain, w, x0, {})),
              near);
    const OuterGradients f = taped->gradients(here(w), mixture, base.valid().prepare({})),
                         g = autograd::outer_gradients(plain, w, x0, {});
    EXPECT_LT(relative_error(cpu(f.loss), g.loss.detach()), near);
    EXPECT_LT(relative_error(cpu(f.w), g.w), near);
    EXPECT_LT(relative_error(cpu(f.x), g.x), near);

    const auto ours = taped->linearize(here(w), mixture, images);
    EXPECT_LT(relative_error(cpu(ours->hessian(here(v))), theirs->hessian(v)), near);
    EXPECT_LT(relative_error(cpu(ours->cross(here(v))), theirs->cross(v)), near);
    EXPECT_LT(relative_error(cpu(ours->cross_transposed(here(u))), theirs->cross_transposed(u)), near);
    const auto [of_w, of_alpha] = ours->hessian_and_cross(here(w));  // another product at the same point
    EXPECT_LT(relative_error(cpu(of_w), theirs->hessian(w)), near);
    EXPECT_LT(relative_error(cpu(of_alpha), theirs->cross(w)), near);
    EXPECT_LT(relative_error(cpu(ours->gauss_newton(here(v))), theirs->gauss_newton(v)), near);
    EXPECT_LT(relative_error(cpu(ours->gradient()), theirs->gradient()), near);
  }
}

const std::vector<TapeCase>& cases() {
  static const std::vector<TapeCase> all = {
      {{}, 3, 1, 8, 8, 5},
      {{}, 2, 2, 7, 5, 4},
      {{"skip_connect", "nor_conv_1x1"}, 2, 1, 8, 8, 6},
      {{"none", "avg_pool_3x3"}, 2, 1, 6, 9, 4},
      {{"nor_conv_3x3", "nor_conv_1x1", "none"}, 4, 1, 4, 4, 3},
  };
  return all;
}

// Norms over the few numbers of the smallest cases cost a digit; FollowsEverySampling, below, has all of
// them.
TEST(Tape, GivesTheDerivativesOfAutomaticDifferentiation) {
  for (const TapeCase& c : cases()) expect_same_derivatives(c, test::doubles(), 1e-11);
}

TEST(Tape, GivesThemWithAShiftedMixture) {
  for (const TapeCase& c : cases()) expect_same_derivatives(c, test::doubles(), 1e-11, true);
}

// Three cells of DARTS have a normal one and two reductions, with inputs of two sizes; odd sizes are cut off
// at the edges; 6 and 12 channels fill registers of several widths.
const std::vector<TapeCase>& darts_cases() {
  static const std::vector<TapeCase> all = {
      {{}, 2, 3, 8, 8, 3, "darts"},
      {{"sep_conv_5x5", "dil_conv_3x3", "skip_connect"}, 6, 3, 9, 7, 3, "darts"},
      {{"none", "max_pool_3x3", "avg_pool_3x3"}, 2, 3, 7, 9, 4, "darts"},
  };
  return all;
}
TEST(Tape, GivesThemInDarts) {
  for (const TapeCase& c : darts_cases()) {
    SCOPED_TRACE(c.channels);
    expect_same_derivatives(c, test::doubles(), 1e-12, false, 1);
  }
}

const std::vector<TapeCase>& nasbench1shot1_cases() {
  static const std::vector<TapeCase> all = {
      {{}, 3, 3, 8, 7, 5, "nasbench1shot1-1"},
      {{}, 3, 3, 8, 7, 5, "nasbench1shot1-2"},
      {{}, 2, 2, 9, 8, 4, "nasbench1shot1-3"},
  };
  return all;
}
TEST(Tape, GivesThemInNasBench1Shot1) {
  for (const TapeCase& c : nasbench1shot1_cases()) {
    SCOPED_TRACE(c.space);
    expect_same_derivatives(c, test::doubles(), 1e-12, false, 1);
  }
}

// One operation per choice, drawn by the batch's seed: the tape's engine against the plain network.
TEST(TapedEngine, FollowsEverySampling) {
  for (const std::string space : {"nasbench201", "darts", "nasbench1shot1-3"}) {
    for (const Sampling sampling :
         {Sampling::softmax, Sampling::gumbel, Sampling::uniform, Sampling::given}) {
      SCOPED_TRACE(space);
      const TapeCase c{{}, 2, space == "darts" ? 2 : 1, 8, 8, 4, space};
      SupernetProblem base = problem_of(c, true, test::doubles()),
                      plain = problem_of(c, false, test::doubles());
      const Tensor w = plain.initial_inner(1), x = random_like(plain.initial_outer(1), 3),
                   v = random_like(w, 8);
      for (SupernetProblem* each : {&base, &plain}) {
        each->set_sampling(sampling, 3);
        if (sampling == Sampling::given) each->set_mixture(random_like(x, 4));
      }
      const auto engine = tape_supernet(base);
      ASSERT_NE(engine, nullptr);
      Batch batch;
      batch.seed = 5;
      EXPECT_LT(relative_error(engine->inner_gradient(w, x, batch), plain.inner_gradient(w, x, batch)),
                1e-12);
      EXPECT_LT(relative_error(engine->linearize(w, x, batch)->hessian(v),
                               plain.linearize(w, x, batch)->hessian(v)),
                1e-12);
      EXPECT_EQ(engine->inner_loss_uses_outer(), plain.inner_loss_uses_outer());
      if (!plain.inner_loss_uses_outer()) continue;
      const OuterGradients f = engine->outer_gradients(w, x, batch), g = plain.outer_gradients(w, x, batch);
      EXPECT_LT(relative_error(f.loss, g.loss.detach()), 1e-12);
      EXPECT_LT(relative_error(f.w, g.w), 1e-12);
      EXPECT_LT(relative_error(f.x, g.x), 1e-12);
      const OuterGradients in_alpha = engine->outer_gradient_in_outer(w, x, batch);
      EXPECT_FALSE(in_alpha.w.defined());  // not computed
      EXPECT_TRUE(in_alpha.x.equal(f.x));
      EXPECT_TRUE(in_alpha.loss.equal(f.loss));
      EXPECT_LT(
          relative_error(engine->linearize(w, x, batch)->cross(v), plain.linearize(w, x, batch)->cross(v)),
          1e-12);
      const RoleSwap swapped(plain);
      EXPECT_LT(relative_error(engine->outer_curvature(w, x, batch)(x),
                               autograd::linearize(swapped, x, w, batch)->hessian(x)),
                1e-12);
    }
  }
}

TEST(Tape, GivesTheGradientAtAGivenMixture) {
  const SupernetProblem base = problem_of(cases()[0], true, test::doubles());
  const auto taped = TapedSupernet::make(base);
  ASSERT_TRUE(taped.has_value());
  const Tensor w = base.initial_inner(1), mixture = random_like(base.initial_outer(1), 2);
  EXPECT_LT(relative_error(taped->gradient(w, mixture, base.train().prepare({})),
                           base.inner_gradient_at(w, mixture, {})),
            1e-12);
}

TEST(Tape, GivesThemOnAGpu) {
  const auto gpu = test::doubles().device(at::kCUDA);
  if (!at::hasCUDA() || !can_run_tape(gpu)) GTEST_SKIP() << "needs a GPU and its kernels";
  for (const TapeCase& c : cases()) expect_same_derivatives(c, gpu, 1e-10);
  for (const TapeCase& c : cases()) expect_same_derivatives(c, gpu, 1e-10, true);
  for (const TapeCase& c : darts_cases()) expect_same_derivatives(c, gpu, 1e-10);
  for (const TapeCase& c : nasbench1shot1_cases()) expect_same_derivatives(c, gpu, 1e-10);
}

// In float the tape is as near to double precision as automatic differentiation is; with TF32, which rounds
// to eleven bits, nearly so: LibTorch then takes full precision for some of the convolutions.
TEST(Tape, IsAsNearAsAutomaticDifferentiationOnAGpu) {
  const auto gpu = at::TensorOptions(at::kFloat).device(at::kCUDA);
  if (!at::hasCUDA() || !can_run_tape(gpu)) GTEST_SKIP() << "needs a GPU and its kernels";
  for (const bool tf32 : {false, true}) {
    const test::TensorFloat32 as_said(tf32);
    for (const int64_t size : {32, 24}) {
      const TapeCase c{{}, 16, 1, size, size, 8};
      const SupernetProblem exact = problem_of(c, true, test::doubles()), base = problem_of(c, true, gpu);
      const auto reference = TapedSupernet::make(exact), taped = TapedSupernet::make(base);
      ASSERT_TRUE(reference.has_value() && taped.has_value());
      const Tensor w = exact.initial_inner(1), x = exact.initial_outer(1), v = random_like(w, 8);
      const auto truth = reference->linearize(w, exact.softmax_point(x), exact.train().prepare({}));
      const auto ours = taped->linearize(w.to(gpu), base.softmax_point(x.to(gpu)), base.train().prepare({}));
      const auto theirs = base.linearize(w.to(gpu), x.to(gpu), {});
      const auto expect_near = [&](const char* what, const Tensor& a, const Tensor& b, const Tensor& right) {
        const double error = relative_error(a.to(at::kCPU, at::kDouble), right),
                     usual = relative_error(b.to(at::kCPU, at::kDouble), right);
        EXPECT_LT(error, (tf32 ? 4 : 2) * usual) << what << ", size " << size;
        EXPECT_LT(error, tf32 ? 0.1 : 1e-4) << what << ", size " << size;
      };
      expect_near("gradient", ours->gradient(), theirs->gradient(), truth->gradient());
      expect_near("Hessian", ours->hessian(v.to(gpu)), theirs->hessian(v.to(gpu)), truth->hessian(v));
      expect_near("cross", ours->cross(v.to(gpu)), theirs->cross(v.to(gpu)), truth->cross(v));
    }
  }
}

TEST(Tape, GivesTheSameBitsTwice) {
  const test::DeterministicCuDNN every_time;
  for (const bool on_gpu : {false, true}) {
    const auto tensors = at::TensorOptions(at::kFloat).device(on_gpu ? at::kCUDA : at::kCPU);
    if (on_gpu && (!at::hasCUDA() || !can_run_tape(tensors))) continue;
    const SupernetProblem base = problem_of({{}, 16, 1, 16, 16, 8}, true, tensors);
    const auto taped = TapedSupernet::make(base);
    ASSERT_TRUE(taped.has_value());
    const Tensor w = base.initial_inner(1);
    const MixturePoint x = base.softmax_point(base.initial_outer(1));
    const LabelledImages images = base.train().prepare({});
    const auto a = taped->linearize(w, x, images), b = taped->linearize(w, x, images);
    EXPECT_TRUE(a->gradient().equal(b->gradient()));
    EXPECT_TRUE(a->hessian(w).equal(b->hessian(w)));
    EXPECT_TRUE(a->cross(w).equal(b->cross(w)));
  }
}

TEST(Tape, SaysWhenABatchIsTooLarge) {
  const SupernetProblem base = problem_of(cases()[0], true, test::doubles());
  const auto taped = TapedSupernet::make(base);
  const int64_t samples = 5'000'000;
  const LabelledImages many{at::zeros({1, 3, 8, 8}, test::doubles()).expand({samples, 3, 8, 8}),
                            at::zeros({1}, at::kLong).expand({samples})};
  try {
    taped->gradient(base.initial_inner(0), base.initial_outer(0), many);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("a batch of 5000000 images with 9 channels of 8 x 8"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give a smaller batch or fewer channels"));
  }
}

// A number that is not finite must reach the loss, as it does in LibTorch, and not end in a max(., 0).
TEST(Tape, LetsNotANumberThrough) {
  for (const TapeCase& c : {cases()[0], darts_cases()[0], nasbench1shot1_cases()[0]}) {
    const SupernetProblem base = problem_of(c, true, test::doubles());
    LabelledImages images = base.train().prepare({});
    images.images = images.images.clone();
    images.images.fill_(std::nan(""));
    const auto taped = TapedSupernet::make(base);
    const OuterGradients g =
        taped->gradients(base.initial_inner(0), base.softmax_point(base.initial_outer(0)), images);
    EXPECT_TRUE(std::isnan(g.loss.item<double>())) << c.space;
    // Backwards, too: adjoints where a feature is no number.
    EXPECT_GT(g.w.isnan().sum().item<int64_t>(), g.w.numel() / 2) << c.space;
    EXPECT_TRUE(g.x.isnan().any().item<bool>()) << c.space;
  }
}

TEST(Tape, IsThereForMergedSupernetsAlone) {
  for (const std::string& space : space_names()) {
    SupernetOptions options;
    options.channels = 4;
    options.height = options.width = 8;
    EXPECT_TRUE(record(Supernet(make_space(space), options)).has_value()) << space;
    options.merged = false;
    EXPECT_FALSE(record(Supernet(make_space(space), options)).has_value()) << space;
  }
}

}  // namespace
}  // namespace bilevel::nas
