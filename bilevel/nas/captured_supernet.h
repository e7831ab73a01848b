#pragma once
// A supernet's derivatives as CUDA graphs (captured.h). What is captured are the passes over the supernet's
// tape (tape/), which keep independent branches apart, or, where it has none, what automatic differentiation
// computes. A graph is a function of the weights of the choices, so that it serves every way of sampling
// them; what lies between them and alpha is computed around it.

#include <memory>

#include "bilevel/nas/captured.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

// Batches of `batch` images go through graphs; others through `base`, which must outlive the result. On the
// CPU nothing is captured, and the same functions are called. `tape`: false = by automatic differentiation,
// also where the supernet has a tape.
std::unique_ptr<SupernetEngine> capture_supernet(const SupernetProblem& base, int64_t batch,
                                                 bool tape = true);
// False for DARTS's space on a GPU, where that tape had wrong gradients (for_padded_pool in pass.h). The
// cause is mended, but a search does not rely on it until the tests of captured supernets have passed on a
// GPU.
bool tape_is_trusted(const SupernetProblem& base);

}  // namespace bilevel::nas
