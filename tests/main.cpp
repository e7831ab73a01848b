// The main function of every test program: GoogleTest on all cores, so that the tests run as the program
// does.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <thread>

int main(int argc, char** argv) {
  at::set_num_threads(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
