// The supernet's derivatives as CUDA graphs against the same without.

#include <gtest/gtest.h>

#include "bilevel/core/finite.h"
#include "bilevel/nas/captured_supernet.h"
#include "bilevel/nas/synthetic_images.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::relative_error;

TEST(CapturedSupernet, GivesWhatTheSupernetGives) {
  if (!can_capture()) GTEST_SKIP() << "CUDA graphs need a GPU and a LibTorch with CUDA";
  const auto gpu = test::doubles().device(at::kCUDA);
  SupernetOptions options;
  options.channels = 2;
  options.cells = 1;
  options.height = options.width = 8;
  const auto train = image_source(draw_images({.samples = 12, .seed = 1}, gpu));
  const auto valid = image_source(draw_images({.samples = 12, .seed = 2}, gpu));
  SupernetProblem plain(Supernet(make_space("nasbench201"), options), train, valid, gpu);
  const auto captured = capture_supernet(plain, 4);
  Oracle a(*captured), b(plain);
  const NoWaiting nothing_is_read;
  for (uint64_t seed = 0; seed < 3; ++seed) {  // the same graphs at other points and on other batches
    const Tensor w = plain.initial_inner(seed),
                 x = test::random_like(plain.initial_outer(seed).cpu(), seed).to(gpu);
    const Batch batch{at::arange(4) + static_cast<int64_t>(seed), seed};
    // A graph sees what is added to the mixture as it is now.
    plain.set_mixture_shift(0.1 * static_cast<double>(seed) * at::ones_like(x));
    EXPECT_LT(relative_error(a.inner_gradient(w, x, batch), b.inner_gradient(w, x, batch)), 1e-11);
    EXPECT_LT(relative_error(a.inner_gradient_in_outer(w, x, batch), b.inner_gradient_in_outer(w, x, batch)),
              1e-11);
    EXPECT_LT(relative_error(captured->inner_gradient_at(w, x, batch), plain.inner_gradient_at(w, x, batch)),
              1e-11);
    const OuterGradients f = a.outer_gradients(w, x, batch), g = b.outer_gradients(w, x, batch);
    EXPECT_LT(relative_error(f.w, g.w), 1e-11);
    EXPECT_LT(relative_error(f.x, g.x), 1e-11);
    EXPECT_LT(relative_error(f.loss, g.loss), 1e-12);
    const auto here = a.linearize(w, x, batch), there = b.linearize(w, x, batch);
    const Batch other{at::arange(4) + 6, seed};
    const auto elsewhere = a.linearize(w, x, other);
    const Tensor v = test::random_like(w.cpu(), 9).to(gpu);
    const Tensor first = here->hessian(v);
    EXPECT_LT(relative_error(first, there->hessian(v)), 1e-10);
    EXPECT_GT(relative_error(elsewhere->hessian(v), first), 1e-3);
    EXPECT_LT(relative_error(here->hessian(v + w), there->hessian(v + w)), 1e-10);
    EXPECT_LT(relative_error(here->cross(v), there->cross(v)), 1e-10);
    EXPECT_LT(relative_error(here->gradient(), there->gradient()), 1e-11);
    EXPECT_LT(relative_error(here->gauss_newton(v), there->gauss_newton(v)), 1e-10);
    // A batch of another size goes another way.
    const Batch larger{at::arange(7), seed};
    EXPECT_LT(relative_error(a.inner_gradient(w, x, larger), b.inner_gradient(w, x, larger)), 1e-11);
  }
}

}  // namespace
}  // namespace bilevel::nas
