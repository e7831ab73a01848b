#pragma once
// What the benches share: options written as --name value, threads and allocator, and the process's
// own memory.

#include <ATen/Parallel.h>
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "bilevel/run/block_cache.h"

namespace bench {

// --name value, or --name alone for a flag. Every option must be asked for before `finish`, which names the
// rest.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0)
        throw std::invalid_argument("expected an option --name, found '" + name + "'");
      const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
      given_[name.substr(2)] = has_value ? argv[++i] : "";
    }
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    const auto found = given_.find(name);
    if (found == given_.end()) return otherwise;
    const std::string value = found->second;
    given_.erase(found);
    return value;
  }

  int64_t integer(const std::string& name, int64_t otherwise) {
    const std::string value = text(name, std::to_string(otherwise));
    size_t read = 0;
    int64_t result = 0;
    try {
      result = std::stoll(value, &read);
    } catch (const std::exception&) {
      read = 0;
    }
    if (value.empty() || read != value.size() || result < 1) {
      throw std::invalid_argument("--" + name + " " + value + ": must be an integer of at least 1");
    }
    return result;
  }

  bool flag(const std::string& name) {
    const bool set = given_.count(name) > 0;
    if (const std::string value = text(name, ""); !value.empty()) {
      throw std::invalid_argument("--" + name + " takes no value, but was given '" + value + "'");
    }
    return set;
  }

  void finish() const {
    if (!given_.empty())
      throw std::invalid_argument("--" + given_.begin()->first + " is no option of this bench");
  }

 private:
  std::map<std::string, std::string> given_;
};

// --threads (LibTorch's own default can be one on a machine with several cores) and --allocator.
struct Machine {
  int64_t threads;
  std::string allocator;

  explicit Machine(Options& options)
      : threads(options.integer("threads", static_cast<int64_t>(std::thread::hardware_concurrency()))),
        allocator(options.text("allocator", "blocks")) {
    if (allocator != "blocks" && allocator != "system") {
      throw std::invalid_argument("--allocator " + allocator +
                                  ": choose blocks (bilevel/run/block_cache.h) or system");
    }
    at::set_num_threads(static_cast<int>(threads));
    if (allocator == "blocks") bilevel::use_block_cache();
  }
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A field of a /proc file whose lines read "Name:   123 kB", in bytes.
inline int64_t proc_bytes(const char* file, const std::string& field) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(field + ":", 0) == 0) {
      std::istringstream rest(line.substr(field.size() + 1));
      int64_t kilobytes = 0;
      rest >> kilobytes;
      return kilobytes * 1024;
    }
  }
  throw std::runtime_error(std::string(file) + " has no field " + field);
}

// The rise of the process's peak over a section: free memory goes back to the system and the kernel forgets
// the peak so far, so what is read afterwards is the section's own.
class PeakMemory {
 public:
  PeakMemory() {
    malloc_trim(0);
    bilevel::trim_block_cache();
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) throw std::runtime_error("/proc/self/clear_refs cannot be written");
    before_ = proc_bytes("/proc/self/status", "VmHWM");
  }
  int64_t rise() const { return proc_bytes("/proc/self/status", "VmHWM") - before_; }

 private:
  int64_t before_ = 0;
};

}  // namespace bench
