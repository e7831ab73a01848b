#pragma once
// Libraries read some variables of the environment while they are loaded, before any code of the program
// runs. A program that finds a better value for one of them sets it and starts itself again:
//
//     int main(int argc, char** argv) {
//       bilevel::restart_with_best_settings(argv);  // first: what was done before it is done twice
//
// - OPENBLAS_CORETYPE, where OpenBLAS fell back to the kernels of an old processor
// (bilevel/run/blas_kernels.h);
// - GOMP_SPINCOUNT=10000: a thread of OpenMP that waits for another spins for about half a millisecond and
//   then sleeps. GNU's OpenMP lets it spin 30 times as long, which takes the core from the very thread that
//   it waits for wherever other programs run too; sleeping at once costs what the second thread brings.

namespace bilevel {

// Same process, arguments and folder. What the user has set stays (for OpenMP also OMP_WAIT_POLICY). Returns
// if there is nothing to do, or if the system refuses.
void restart_with_best_settings(char** argv);

}  // namespace bilevel
