#include "bilevel/jobs/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/api/include/torch/cuda.h>

#include <algorithm>
#include <thread>

#include "bilevel/distributed/process_group.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/machine.h"
#include "bilevel/run/run_context.h"

namespace bilevel {
namespace {

constexpr int most_threads = 1024;  // a run.json with more cannot be read

// Without a number: a GPU for each rank of a machine, while there are as many.
c10::Device device_of(const std::string& name, const RunContext& context) {
  const c10::Device device(name);
  if (!context.group() || !device.is_cuda() || device.has_index()) return device;
  const int gpus = std::max(static_cast<int>(torch::cuda::device_count()), 1);
  const int own = context.group()->place().local_rank % gpus;
  return own == 0 ? device : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(own));
}

}  // namespace

const Fields<ComputeOptions>& ComputeOptions::fields() {
  static const Fields<ComputeOptions> table = [] {
    Fields<ComputeOptions> f;
    f.add(
         "dtype", [](auto& o) -> auto& { return o.dtype; }, "precision: float or double")
        .one_of({"float", "double"});
    f.add(
         "device", [](auto& o) -> auto& { return o.device; }, "device: cpu, cuda or cuda:N")
        .is(FieldKind::place)
        .first();
    f.add(
        "tf32", [](auto& o) -> auto& { return o.tf32; },
        "let a GPU's convolutions in float round the numbers they multiply to TF32 (10 bits of mantissa), "
        "which is faster (default)");
    f.add(
         "threads", [](auto& o) -> auto& { return o.threads; }, "number of threads; 0 = all cores")
        .in(at_least(0, most_threads))
        .is(FieldKind::place)
        .first();
    return f;
  }();
  return table;
}

at::TensorOptions tensor_options(const ComputeOptions& options, const RunContext& context) {
  const std::string device = named("device", options.device);
  if (options.device == "cpu" && context.group() && context.group()->backend() == "nccl") {
    throw OptionError(fmt::format("{} with {}: NCCL sums what is on GPUs; use {} or {}",
                                  named("backend", "nccl"), device, named("device", "cuda"),
                                  named("backend", "gloo")));
  }
  if (options.device != "cpu" && options.device.rfind("cuda", 0) != 0) {
    throw OptionError(fmt::format("{}: choose cpu, cuda or cuda:N", device));
  }
  if (options.device != "cpu" && !at::hasCUDA()) {
    throw OptionError(fmt::format("{}: this LibTorch has no CUDA, or there is no GPU; use {}", device,
                                  named("device", "cpu")));
  }
  if (!options.tf32 && (options.device == "cpu" || options.dtype == "double")) {
    const std::string with = options.device == "cpu" ? device : named("dtype", options.dtype);
    throw OptionError(no_effect(named("tf32", "false"), with, {named("device", "cuda") + " in float"}));
  }
  try {
    const auto dtype = options.dtype == "float" ? at::kFloat : at::kDouble;
    return at::TensorOptions().dtype(dtype).device(device_of(options.device, context));
  } catch (const c10::Error&) {
    throw OptionError(fmt::format("{}: choose cpu, cuda or cuda:N", device));
  }
}

at::TensorOptions apply(const ComputeOptions& options, const RunContext& context) {
  const int ranks_here = context.group() ? context.group()->local_size() : 1;
  const int cores =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / ranks_here, 1, most_threads);
  at::set_num_threads(options.threads > 0 ? options.threads : cores);
  const at::TensorOptions tensors = tensor_options(options, context);
  if (tensors.device().is_cuda()) at::globalContext().setAllowTF32CuDNN(options.tf32);
  if (options.device == "cpu") {
    for (const std::string& warning : machine_facts().warnings) context.warning(warning);
  }
  return tensors;
}

}  // namespace bilevel
