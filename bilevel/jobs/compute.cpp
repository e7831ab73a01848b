#include "bilevel/jobs/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bilevel/fields/option_text.h"
#include "bilevel/run/machine.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

constexpr int most_threads = 1024;  // a run.json with more cannot be read

const Fields<ComputeOptions>& ComputeOptions::fields() {
  static const Fields<ComputeOptions> table = [] {
    Fields<ComputeOptions> f;
    f.add(
         "dtype", [](auto& o) -> auto& { return o.dtype; }, "float or double")
        .one_of({"float", "double"});
    f.add(
         "device", [](auto& o) -> auto& { return o.device; }, "cpu, cuda or cuda:N")
        .is(FieldKind::place)
        .first();
    f.add(
         "threads", [](auto& o) -> auto& { return o.threads; }, "threads; 0 = all cores")
        .in(at_least(0, most_threads))
        .is(FieldKind::place)
        .first();
    return f;
  }();
  return table;
}

at::TensorOptions tensor_options(const ComputeOptions& options) {
  const std::string device = named("device", options.device);
  if (options.device != "cpu" && options.device.rfind("cuda", 0) != 0) {
    throw OptionError(fmt::format("{}: choose cpu, cuda or cuda:N", device));
  }
  if (options.device != "cpu" && !at::hasCUDA()) {
    throw OptionError(fmt::format("{}: this LibTorch has no CUDA, or there is no GPU; use {}", device,
                                  named("device", "cpu")));
  }
  try {
    const auto dtype = options.dtype == "float" ? at::kFloat : at::kDouble;
    return at::TensorOptions().dtype(dtype).device(c10::Device(options.device));
  } catch (const c10::Error&) {
    throw OptionError(fmt::format("{}: choose cpu, cuda or cuda:N", device));
  }
}

at::TensorOptions apply(const ComputeOptions& options, const RunContext& context) {
  const int ranks_here = context.group() ? context.group()->local_size() : 1;
  const int cores =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / ranks_here, 1, most_threads);
  at::set_num_threads(options.threads > 0 ? options.threads : cores);
  const at::TensorOptions tensors = tensor_options(options);
  if (options.device == "cpu") {
    for (const std::string& warning : machine_facts().warnings) context.warning(warning);
  }
  return tensors;
}

}  // namespace bilevel
