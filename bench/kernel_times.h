#pragma once
// Where a GPU's time goes: the kernels (and copies) that run between construction and `stop`, by name, as
// LibTorch's profiler sees them. Kernels of captured graphs are seen one by one.

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class KernelTimes {
 public:
  KernelTimes() {
    using namespace torch::profiler::impl;
    const ProfilerConfig config(ProfilerState::KINETO);
    const std::set<ActivityType> both = {ActivityType::CPU, ActivityType::CUDA};
    torch::autograd::profiler::prepareProfiler(config, both);
    torch::autograd::profiler::enableProfiler(config, both);
  }

  // Whatever was launched must have ended. {"span_ms", "busy_ms": some kernel ran, "kernel_ms": the sum over
  // kernels, "launches", "kernels": the longest by name}. `file`: where the whole trace is written.
  nlohmann::ordered_json stop(size_t rows, const std::string& file) {
    torch::autograd::profiler::disableProfiler()->save(file);
    std::ifstream in(file);
    const auto trace = nlohmann::json::parse(in);
    std::map<std::string, std::pair<double, int64_t>> by_name;
    std::vector<std::pair<double, double>> times;  // begin and end, microseconds
    double sum = 0;
    for (const auto& event : trace.at("traceEvents")) {
      const std::string kind = event.value("cat", "");
      if (kind != "kernel" && kind != "gpu_memcpy" && kind != "gpu_memset") continue;
      const double begin = event.at("ts").get<double>(), length = event.at("dur").get<double>();
      auto& [total, calls] = by_name[event.at("name").get<std::string>()];
      total += length;
      ++calls;
      sum += length;
      times.emplace_back(begin, begin + length);
    }
    if (times.empty())
      throw std::runtime_error("the profiler saw no kernels: it works on CUDA devices alone");
    std::sort(times.begin(), times.end());
    double busy = 0, until = times.front().first;
    for (const auto& [begin, end] : times) {
      busy += std::max(0.0, end - std::max(begin, until));
      until = std::max(until, end);
    }
    nlohmann::ordered_json result{{"span_ms", (until - times.front().first) / 1e3},
                                  {"busy_ms", busy / 1e3},
                                  {"kernel_ms", sum / 1e3},
                                  {"launches", times.size()}};
    std::vector<std::pair<std::string, std::pair<double, int64_t>>> sorted(by_name.begin(), by_name.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
    for (size_t i = 0; i < std::min(rows, sorted.size()); ++i) {
      result["kernels"].push_back({{"name", sorted[i].first.substr(0, 160)},
                                   {"ms", sorted[i].second.first / 1e3},
                                   {"calls", sorted[i].second.second}});
    }
    return result;
  }
};

}  // namespace bench
