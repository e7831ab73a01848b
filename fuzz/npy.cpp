// NumPy's arrays.
#include "bilevel/data/npy.h"

#include <ATen/ATen.h>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_npy(std::string_view bytes) {
  return taken_file(path_of(bytes), [&](const auto& file) {
    const Tensor array = read_npy(file);
    require(array.is_contiguous(), "NPY: an array that is not contiguous");
    // Unsigned integers come back twice as wide.
    require(array.nbytes() <= 2 * bytes.size(), "NPY: more data than the file has");
  });
}

const Register npy_target("npy", give_npy);

}  // namespace
}  // namespace bilevel::fuzz
