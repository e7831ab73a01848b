#pragma once
// Which kernels OpenBLAS runs on, and whether this processor can run better ones.
//
// OpenBLAS chooses its kernels by the processor's model number while it is loaded, and falls back to those of
// an old processor ("Prescott", without AVX) where it does not know the model; matrix products are then
// several times slower. The variable OPENBLAS_CORETYPE names others, but OpenBLAS reads it before any code of
// the program runs: bilevel/run/restart.h starts the program again with it. A program that must not be
// started again asks blas_kernels().fallback(), and sets OPENBLAS_CORETYPE to blas_kernels().best where it is
// launched.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bilevel {

struct BlasKernels {
  std::string running;  // OpenBLAS's name for the kernels in use; empty = another BLAS, which does not say
  std::string
      best;  // the best kernels of OpenBLAS for this processor; empty = none beyond those any x86-64 runs
  bool own_setting = false;  // `running` is what the user's own OPENBLAS_CORETYPE names

  bool fallback() const;        // the kernels in use leave vector instructions of this processor unused
  std::string warning() const;  // a fallback that was not requested, and the remedy; empty = none
};
BlasKernels blas_kernels();

// The kernels that OpenBLAS's description of itself (MachineFacts::blas) names; empty = none that are known.
std::string kernels_named_in(std::string_view description);

// Whether the kernels `running` are for a narrower vector unit than `best`; false for names that are unknown.
bool is_fallback(std::string_view running, std::string_view best);

// The variables that a second start needs to run on the best kernels; none where OpenBLAS has not fallen
// back, where OPENBLAS_CORETYPE is the user's own, and where this process is that second start already
// (BILEVEL_CORETYPE is set): blas_kernels().warning() is then not empty.
std::vector<std::pair<std::string, std::string>> variables_for_best_kernels();

}  // namespace bilevel
