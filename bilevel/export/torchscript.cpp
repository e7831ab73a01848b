// A model as a TorchScript file, which torch.jit.load and torch::jit::load read. The description travels as
// an extra file of the archive.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <stdexcept>

#include "bilevel/data/write_file.h"
#include "bilevel/export/formats.h"
#include "bilevel/export/recorded_module.h"

namespace bilevel {

void write_torchscript(const std::string& path, const ExportedModel& model) {
  const torch::jit::ExtraFilesMap extra = {{description_file, model.description.dump(2) + "\n"}};
  write_file(path, [&](std::ostream& file) { recorded_module(model).save(file, extra); });
}

ExportedModel read_torchscript(const std::string& path) {
  torch::jit::ExtraFilesMap extra = {{description_file, ""}};
  ExportedModel model;
  try {
    const torch::jit::Module module = torch::jit::load(path, at::Device(at::kCPU), extra);
    model.description = parse_description(path, extra.at(description_file));
    for (const auto& name : model.description.at("arrays")) {
      const auto array = name.get<std::string>();
      model.arrays.push_back({array, module.attr(attribute_name(array)).toTensor().detach()});
    }
  } catch (const c10::Error& error) {
    throw std::runtime_error(
        fmt::format("{}: is not a readable TorchScript file: {}", path, error.what_without_backtrace()));
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("{}: is not a model of `bilevel export`: {}", path, error.what()));
  }
  return model;
}

}  // namespace bilevel
