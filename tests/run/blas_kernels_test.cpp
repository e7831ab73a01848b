// The kernels that OpenBLAS runs on: which count as a fallback, and that this very program is not on one.

#include "bilevel/run/blas_kernels.h"

#include <gmock/gmock.h>

#include "bilevel/run/machine.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BlasKernels, a_fallback_is_a_narrower_vector_unit) {
  EXPECT_TRUE(is_fallback("Prescott", "Cooperlake"));
  EXPECT_TRUE(is_fallback("Prescott", "Haswell"));
  EXPECT_TRUE(is_fallback("Core2", "Zen"));
  EXPECT_TRUE(is_fallback("Barcelona", "Zen"));
  EXPECT_TRUE(is_fallback("Sandybridge", "Haswell"));
  EXPECT_TRUE(is_fallback("Haswell", "SkylakeX"));
  EXPECT_TRUE(is_fallback("haswell", "skylakex"));
  EXPECT_FALSE(is_fallback("SkylakeX", "Cooperlake"));  // the same vectors
  EXPECT_FALSE(is_fallback("Haswell", "Zen"));
  EXPECT_FALSE(is_fallback("SkylakeX", "Haswell"));
  EXPECT_FALSE(is_fallback("GraniteRapids", "Cooperlake"));  // a newer OpenBLAS knows better
  EXPECT_FALSE(is_fallback("ARMV8", ""));
  EXPECT_FALSE(is_fallback("", "Cooperlake"));  // another BLAS
}

TEST(BlasKernels, the_warning_names_the_way_out_unless_it_was_the_users_choice) {
  BlasKernels kernels{.running = "Prescott", .best = "Cooperlake", .own_setting = false};
  EXPECT_TRUE(kernels.fallback());
  EXPECT_THAT(kernels.warning(), AllOf(HasSubstr("Prescott"), HasSubstr("OPENBLAS_CORETYPE=Cooperlake")));
  kernels.own_setting = true;
  EXPECT_TRUE(kernels.fallback());
  EXPECT_THAT(kernels.warning(), IsEmpty());
  kernels = {.running = "Cooperlake", .best = "Cooperlake", .own_setting = false};
  EXPECT_FALSE(kernels.fallback());
  EXPECT_THAT(kernels.warning(), IsEmpty());
}

TEST(BlasKernels, the_tests_run_on_the_processors_own) {
  const BlasKernels kernels = blas_kernels();
  if (!kernels.running.empty()) {
    EXPECT_EQ(kernels_named_in(machine_facts().blas), kernels.running);
  }
  if (kernels.own_setting) GTEST_SKIP() << "OPENBLAS_CORETYPE asks for " << kernels.running;
  EXPECT_FALSE(kernels.fallback()) << kernels.running << " instead of " << kernels.best;
}

TEST(BlasKernels, a_description_names_them) {
  EXPECT_EQ(kernels_named_in("OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH USE_OPENMP Prescott MAX_THREADS=64"),
            "Prescott");
  EXPECT_EQ(kernels_named_in("OpenBLAS 0.3.21 SkylakeX"), "SkylakeX");
  EXPECT_EQ(kernels_named_in("OpenBLAS 0.3.99 Pentium5 MAX_THREADS=64"), "");
  EXPECT_EQ(kernels_named_in("MKL (in LibTorch)"), "");
  EXPECT_EQ(kernels_named_in(""), "");
}

TEST(BlasKernels, another_core_type_means_other_bits) {
  MachineFacts then, now;
  then.blas = "OpenBLAS 0.3.21 DYNAMIC_ARCH Prescott MAX_THREADS=128";
  now.blas = "OpenBLAS 0.3.21 DYNAMIC_ARCH Cooperlake MAX_THREADS=128";
  EXPECT_THAT(differences(then, now),
              ::testing::ElementsAre("the BLAS's core type was Prescott and is now Cooperlake: bits may "
                                     "differ; OPENBLAS_CORETYPE=Prescott restores them."));
  then.blas = "OpenBLAS 0.3.13 DYNAMIC_ARCH Prescott MAX_THREADS=128";
  EXPECT_THAT(differences(then, now), ::testing::ElementsAre(HasSubstr("the BLAS was OpenBLAS 0.3.13")));
}

}  // namespace
}  // namespace bilevel::test
