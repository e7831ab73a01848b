// The main function of every test program: GoogleTest on all cores and on the BLAS kernels of this
// processor, so that the tests run as the program does.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <thread>

#include "bilevel/run/restart.h"

int main(int argc, char** argv) {
  bilevel::restart_with_best_settings(argv);
  at::set_num_threads(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
