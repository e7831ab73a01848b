// `bilevel export`: the model of a finished run as a file that other programs read.

#include "bilevel/jobs/export.h"

#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

std::string shape_text(const Json& shape) {
  std::string text;
  for (const Json& length : shape) {
    if (!text.empty()) text += " x ";
    text += length.is_string() ? length.get<std::string>() : length.dump();
  }
  return text;
}

void print_export(const ExportJobResult& r) {
  for (const Json& input : r.description.at("inputs")) {
    fmt::print("input   {}: {} of {}\n        {}\n", input.at("name").get<std::string>(),
               shape_text(input.at("shape")), input.at("type").get<std::string>(),
               input.at("holds").get<std::string>());
  }
  const Json& output = r.description.at("output");
  fmt::print("output  {}: n x {}\n        {}\n", output.at("name").get<std::string>(),
             output.at("width").get<int64_t>(), output.at("holds").get<std::string>());
  fmt::print("\n{} numbers in {} arrays written to {}\n", r.numbers, r.arrays, r.output);
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  add_question<ExportJobOptions>(
      app, exit_code,
      {"export", "Write the model of a finished run for other programs",
       "The file has the model's arrays and a description of its inputs, its outputs and the names of its\n"
       "classes. torchscript and onnx also hold the computation, with the scale of its inputs.\n"
       "`bilevel predict --run FILE` reads all three.\n"
       "Examples:\n"
       "  bilevel export --run trained --format onnx --output flowers.onnx\n"
       "  bilevel export --run tuned --format npz"},
      run_export, print_export);
}

}  // namespace bilevel::cli
