#include "bilevel/export/exported_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "bilevel/core/require.h"
#include "bilevel/data/zip.h"
#include "bilevel/export/formats.h"

namespace bilevel {
namespace {

struct ExportFormat {
  std::string_view name, ending;
  void (*write)(const std::string& path, const ExportedModel& model);
};
constexpr std::array<ExportFormat, 3> formats{{{"npz", ".npz", write_npz_model},
                                               {"torchscript", ".pt", write_torchscript},
                                               {"onnx", ".onnx", write_onnx}}};

const ExportFormat& format_of(const std::string& name) {
  const auto found = std::find_if(formats.begin(), formats.end(),
                                  [&](const ExportFormat& format) { return format.name == name; });
  if (found == formats.end()) {
    std::vector<std::string> names;
    for (const ExportFormat& format : formats) names.emplace_back(format.name);
    refuse_unknown("format", name, names);
  }
  return *found;
}

bool begins_as_zip(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 2> start{};
  return file.read(start.data(), start.size()) && std::string_view(start.data(), start.size()) == "PK";
}

// A TorchScript file is a zip too, with its program as data.pkl.
bool is_torchscript(const std::string& path) {
  const ZipArchive archive(path, {.member_bytes = int64_t{1} << 33, .total_bytes = int64_t{1} << 34});
  return std::any_of(archive.members().begin(), archive.members().end(), [](const ZipMember& member) {
    return member.name.ends_with("/data.pkl") || member.name.ends_with("/constants.pkl");
  });
}

}  // namespace

std::string exported_type(at::ScalarType type) {
  if (type == at::kLong) return "int64";
  return type == at::kDouble ? "float64" : "float32";
}

const std::vector<std::string>& export_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ExportFormat& format : formats) all.emplace_back(format.name);
    return all;
  }();
  return names;
}

std::string ending_of_format(const std::string& name) { return std::string(format_of(name).ending); }

void write_exported(const std::string& path, const std::string& format, const ExportedModel& model) {
  format_of(format).write(path, model);
}

ExportedModel read_exported(const std::string& path) {
  if (!begins_as_zip(path)) return read_onnx(path);
  return is_torchscript(path) ? read_torchscript(path) : read_npz_model(path);
}

Json parse_description(const std::string& path, const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw std::runtime_error(fmt::format(
        "{}: expected a model that `bilevel export` wrote, with its description, found none; export it again",
        path));
  }
  return json;
}

}  // namespace bilevel
