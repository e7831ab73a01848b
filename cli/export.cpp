// `bilevel export`: the model of a finished run as a file that other programs read.

#include "bilevel/jobs/export.h"

#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

void print_export(const ExportJobResult& r) {
  for (const ExportJobResult::Input& input : r.inputs) {
    std::string shape = "n";
    for (const int64_t length : input.shape) shape += fmt::format(" x {}", length);
    fmt::print("input   {}: {} of {}\n        {}\n", input.name, shape, input.type, input.holds);
  }
  fmt::print("output  {}: n x {}\n        {}\n", r.model_output.name, r.model_output.width,
             r.model_output.holds);
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
