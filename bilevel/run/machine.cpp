#include "bilevel/run/machine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>

#include "bilevel/run/blas_kernels.h"

namespace bilevel {
namespace {

// The file that a symbol of the running program comes from, without its folder.
std::string library_of(void* symbol) {
  Dl_info info{};
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return ignored ? std::filesystem::path(info.dli_fname).filename().string() : path.filename().string();
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

void describe_blas(MachineFacts& facts) {
  // OpenBLAS says itself how it was built; 2 = on OpenMP, which shares LibTorch's threads.
  const auto config = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
  const auto parallel = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  if (config != nullptr && parallel != nullptr) {
    facts.blas = config();
    if (parallel() != 2) {
      facts.warnings.emplace_back(
          "OpenBLAS is not the OpenMP flavour: it ignores --threads and fights LibTorch's pool; install "
          "libopenblas0-openmp and run scripts/install-dependencies");
    }
    if (const std::string warning = blas_kernels().warning(); !warning.empty()) {
      facts.warnings.push_back(warning);
    }
    return;
  }
  if (at::hasMKL()) {
    facts.blas = "MKL (in LibTorch)";
    return;
  }
  const std::string library = library_of(dlsym(RTLD_DEFAULT, "dgemm_"));
  facts.blas = library.empty() ? "unknown" : library;
  facts.warnings.push_back(fmt::format(
      "the BLAS is {}: the reference BLAS is five times slower; install libopenblas0-openmp", facts.blas));
}

std::string without(std::string text, const std::string& part) {
  const size_t found = part.empty() ? std::string::npos : text.find(part);
  return found == std::string::npos ? text : text.erase(found, part.size());
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.version = BILEVEL_VERSION;
  facts.torch = TORCH_VERSION;
  facts.threads = at::get_num_threads();
  facts.cuda = at::hasCUDA();
  facts.cpu = cpu_name();
  describe_blas(facts);
  return facts;
}

std::vector<std::string> differences(const MachineFacts& then, const MachineFacts& now) {
  std::vector<std::string> sentences;
  const auto compare = [&sentences](const auto& before, const auto& after, std::string_view what,
                                    std::string_view hint) {
    if (before == after) return;
    sentences.push_back(
        fmt::format("{} was {} and is now {}: bits may differ{}.", what, before, after, hint));
  };
  compare(then.version, now.version, "bilevel's version", "");
  compare(then.torch, now.torch, "LibTorch's version", "");
  const std::string kernels_then = kernels_named_in(then.blas), kernels_now = kernels_named_in(now.blas);
  if (without(then.blas, kernels_then) == without(now.blas, kernels_now)) {  // the same library
    compare(kernels_then, kernels_now, "the BLAS's core type",
            fmt::format("; OPENBLAS_CORETYPE={} restores them", kernels_then));
  } else {
    compare(then.blas, now.blas, "the BLAS", "");
  }
  compare(then.cpu, now.cpu, "the processor", "");
  compare(then.threads, now.threads, "the number of threads",
          fmt::format("; --threads {} restores them", then.threads));
  compare(std::string(then.cuda ? "available" : "missing"), std::string(now.cuda ? "available" : "missing"),
          "CUDA", " unless the run is on the CPU");
  return sentences;
}

}  // namespace bilevel
