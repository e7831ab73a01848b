#pragma once
// The formats of exported models, one file each.

#include <string>

#include "bilevel/export/exported_model.h"

namespace bilevel {

void write_npz_model(const std::string& path, const ExportedModel& model);
ExportedModel read_npz_model(const std::string& path);

void write_torchscript(const std::string& path, const ExportedModel& model);
ExportedModel read_torchscript(const std::string& path);

void write_onnx(const std::string& path, const ExportedModel& model);
ExportedModel read_onnx(const std::string& path);

// A description's text as JSON; throws std::runtime_error naming the file for what is none.
Json parse_description(const std::string& path, const std::string& text);

}  // namespace bilevel
