// libFuzzer's entry into the one target that the program is linked with.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)bilevel::fuzz::targets().at(0).read({reinterpret_cast<const char*>(data), size});
  return 0;
}
