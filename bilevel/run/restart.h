#pragma once
// Libraries read some variables of the environment while they are loaded, before any code of the program
// runs. A program that finds a better value for one of them sets it and starts itself again:
//
//     int main(int argc, char** argv) {
//       bilevel::restart_with_best_settings(argv);  // first: what was done before it is done twice
//
// - OPENBLAS_CORETYPE, where OpenBLAS fell back to the kernels of an old processor
// (bilevel/run/blas_kernels.h);
// - OMP_WAIT_POLICY=PASSIVE: a thread of OpenMP that waits for another sleeps. GNU's OpenMP lets it spin,
// which
//   takes the core from the very thread that it waits for wherever other programs run too.

namespace bilevel {

// Same process, arguments and folder. What the user has set stays (for OpenMP also GOMP_SPINCOUNT). Returns
// if there is nothing to do, or if the system refuses.
void restart_with_best_settings(char** argv);

}  // namespace bilevel
