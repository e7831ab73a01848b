#include "cli/common.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "bilevel/run/machine.h"

namespace bilevel::cli {

constexpr int most_threads = 1024;  // a run.json with more cannot be read

void add_common_options(CLI::App& command, CommonOptions& options) {
  command.add_option("--dtype", options.dtype, "float or double")
      ->check(CLI::IsMember({"float", "double"}))
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", options.threads, "threads; 0 = all cores")
      ->check(CLI::Range(0, most_threads))
      ->capture_default_str();
  command.add_flag("--json", options.json, "print one JSON object on stdout and nothing else");
  command.add_flag("--quiet", options.quiet, "no progress on stderr");
  command.add_option("--log-level", options.log_level, "what stderr gets: error, warning, info or debug")
      ->check(CLI::IsMember({"error", "warning", "info", "debug"}))
      ->capture_default_str();
}

at::TensorOptions apply_common_options(const CommonOptions& options) {
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most_threads);
  at::set_num_threads(options.threads > 0 ? options.threads : cores);
  const auto dtype = options.dtype == "float" ? at::kFloat : at::kDouble;
  if (options.device != "cpu" && options.device.rfind("cuda", 0) != 0) {
    throw std::invalid_argument(fmt::format("--device {}: choose cpu, cuda or cuda:N", options.device));
  }
  if (options.device != "cpu" && !at::hasCUDA()) {
    throw std::invalid_argument(fmt::format(
        "--device {}: this LibTorch has no CUDA, or there is no GPU; use --device cpu", options.device));
  }
  if (options.device == "cpu" && says(options, LogLevel::warning)) {
    for (const std::string& warning : machine_facts().warnings) fmt::print(stderr, "warning: {}\n", warning);
  }
  try {
    return at::TensorOptions().dtype(dtype).device(c10::Device(options.device));
  } catch (const c10::Error& error) {
    throw std::invalid_argument(fmt::format("--device {}: choose cpu, cuda or cuda:N", options.device));
  }
}

bool says(const CommonOptions& options, LogLevel level) {
  LogLevel most = LogLevel::info;
  if (options.log_level == "error") most = LogLevel::error;
  if (options.log_level == "warning") most = LogLevel::warning;
  if (options.log_level == "debug") most = LogLevel::debug;
  if (options.quiet) most = std::min(most, LogLevel::warning);
  return level <= most;
}

}  // namespace bilevel::cli
