// A model as plain arrays: nothing in the file can run. The description is the bytes of its text, because
// NumPy's own arrays of text would be an array of another kind for every length.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "bilevel/export/formats.h"

namespace bilevel {

void write_npz_model(const std::string& path, const ExportedModel& model) {
  const std::string text = model.description.dump(2) + "\n";
  const Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  std::vector<NamedArray> arrays = {{description_name, bytes}};
  arrays.insert(arrays.end(), model.arrays.begin(), model.arrays.end());
  write_npz(path, arrays);
}

ExportedModel read_npz_model(const std::string& path) {
  ExportedModel model;
  std::string text;
  for (NamedArray& array : read_npz(path)) {
    if (array.name != description_name) {
      model.arrays.push_back(std::move(array));
    } else if (array.value.scalar_type() == at::kByte) {
      text.assign(static_cast<const char*>(array.value.data_ptr()), array.value.nbytes());
    }
  }
  model.description = parse_description(path, text);
  return model;
}

}  // namespace bilevel
