// For folders whose tensors are small (CMakeLists.txt): two threads would wait for each other longer than
// they work.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace {

class OneThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};

// GoogleTest owns it.
[[maybe_unused]] const auto* const registered = ::testing::AddGlobalTestEnvironment(new OneThread);

}  // namespace
