#include "bilevel/run/blas_kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>

namespace bilevel {
namespace {

constexpr const char* openblas_variable = "OPENBLAS_CORETYPE";
constexpr const char* own_variable = "BILEVEL_CORETYPE";  // what the first start chose for the second

bool same_name(std::string_view a, std::string_view b) {  // OpenBLAS does not look at the case either
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// The vector instructions that a core type of OpenBLAS is written for.
enum class Vectors { sse, avx, avx2, avx512 };
struct Core {
  const char* name;
  Vectors vectors;
};
constexpr Core known_cores[] = {
    {"Katmai", Vectors::sse},        {"Coppermine", Vectors::sse},
    {"Northwood", Vectors::sse},     {"Prescott", Vectors::sse},
    {"Banias", Vectors::sse},        {"Atom", Vectors::sse},
    {"Core2", Vectors::sse},         {"Penryn", Vectors::sse},
    {"Dunnington", Vectors::sse},    {"Nehalem", Vectors::sse},
    {"Athlon", Vectors::sse},        {"Opteron", Vectors::sse},
    {"Opteron_SSE3", Vectors::sse},  {"Barcelona", Vectors::sse},
    {"Bobcat", Vectors::sse},        {"Nano", Vectors::sse},
    {"Generic", Vectors::sse},       {"Unknown", Vectors::sse},
    {"Sandybridge", Vectors::avx},   {"Bulldozer", Vectors::avx},
    {"Piledriver", Vectors::avx},    {"Steamroller", Vectors::avx},
    {"Excavator", Vectors::avx},     {"Haswell", Vectors::avx2},
    {"Zen", Vectors::avx2},          {"SkylakeX", Vectors::avx512},
    {"Cooperlake", Vectors::avx512}, {"SapphireRapids", Vectors::avx512},
};

// An unknown name counts as the newest: it comes from a newer OpenBLAS, which knows newer processors.
Vectors vectors_of(std::string_view name) {
  for (const Core& core : known_cores) {
    if (same_name(core.name, name)) return core.vectors;
  }
  return Vectors::avx512;
}

std::string running_core() {
  const auto name = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name == nullptr ? "" : name();
}

std::string best_core() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (!avx2) return "";
  if (__builtin_cpu_is("amd")) return "Zen";
  if (!avx512) return "Haswell";
  return __builtin_cpu_supports("avx512bf16") ? "Cooperlake" : "SkylakeX";
#else
  return "";
#endif
}

std::string variable(const char* name) {  // empty = not set, as OpenBLAS reads it
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string kernels_named_in(std::string_view description) {
  for (size_t begin = 0; begin < description.size();) {
    const size_t end = std::min(description.find(' ', begin), description.size());
    for (const Core& core : known_cores) {
      if (same_name(core.name, description.substr(begin, end - begin))) return core.name;
    }
    begin = end + 1;
  }
  return {};
}

bool is_fallback(std::string_view running, std::string_view best) {
  return !running.empty() && !best.empty() && vectors_of(running) < vectors_of(best);
}

bool BlasKernels::fallback() const { return is_fallback(running, best); }

std::string BlasKernels::warning() const {
  if (!fallback() || own_setting) return {};
  return fmt::format(
      "OpenBLAS runs on its {} kernels, for older processors than this one: matrix products are several "
      "times slower; set {}={} and restart the program",
      running, openblas_variable, best);
}

BlasKernels blas_kernels() {
  BlasKernels result{.running = running_core(), .best = best_core()};
  const std::string asked = variable(openblas_variable);
  result.own_setting = same_name(asked, result.running) && !same_name(asked, variable(own_variable));
  return result;
}

std::vector<std::pair<std::string, std::string>> variables_for_best_kernels() {
  const BlasKernels now = blas_kernels();
  if (!now.fallback() || !variable(openblas_variable).empty() || !variable(own_variable).empty()) return {};
  return {{openblas_variable, now.best}, {own_variable, now.best}};
}

}  // namespace bilevel
