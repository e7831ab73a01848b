#pragma once
// NumPy's archives of arrays (.npz): a zip with a .npy file for every array. They are written without
// compression, which trained weights do not gain from, and read with every limit of zip.h and npy.h. Pickled
// objects are neither written nor read.

#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct NamedArray {
  std::string name;  // without .npy; may have / in it
  Tensor value;
};

// Throws std::invalid_argument for a name that is empty or comes twice and for more than 4 GiB, which need
// another form of zip; std::runtime_error for a full disk. The same arrays give the same bytes.
void write_npz(const std::string& path, const std::vector<NamedArray>& arrays);
// Throws std::runtime_error naming the file and the array.
std::vector<NamedArray> read_npz(const std::string& path);

}  // namespace bilevel
