// Prints the name of the BLAS kernels that the benches run on (nothing for another BLAS than OpenBLAS), for
// the scripts that start a peer on the same ones.

#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/restart.h"

#include <ATen/Context.h>
#include <fmt/format.h>

int main(int /*argc*/, char** argv) {
  bilevel::restart_with_best_settings(argv);
  (void)at::hasMKL();  // or the linker leaves LibTorch out, and its BLAS
  fmt::print("{}\n", bilevel::blas_kernels().running);
}
