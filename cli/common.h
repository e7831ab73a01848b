#pragma once
// What every command shares: the options that are parsed once for all (threads, device, dtype), the exit
// codes, and the line of progress on stderr.

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>

namespace bilevel::cli {

enum ExitCode {
  success = 0,
  failure = 1,
  bad_input = 2,
  not_finite = 3,
  interrupted = 130  // by a signal, with the state saved: what shells expect
};

struct CommonOptions {
  std::string device = "cpu";
  std::string dtype = "double";
  int threads = 0;  // 0 = all cores
  bool json = false;
  bool quiet = false;
};
void add_common_options(CLI::App& command, CommonOptions& options);
// Sets the threads and returns dtype and device; throws std::invalid_argument where they cannot be had.
at::TensorOptions apply_common_options(const CommonOptions& options);

// A line that is overwritten on a terminal; nothing in a pipe or under --quiet. Cleared when it goes.
class Progress {
 public:
  explicit Progress(const CommonOptions& options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void operator()(const std::string& what);
  bool live() const { return live_; }  // whether there is such a line

 private:
  bool live_;
  bool shown_ = false;
};

}  // namespace bilevel::cli
