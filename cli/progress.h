#pragma once
// What a person who waits sees on stderr: one live line on a terminal, a plain line now and then in a pipe,
// nothing under --quiet.

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "cli/common.h"

namespace bilevel::cli {

class Progress {
 public:
  explicit Progress(const CommonOptions& options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();                               // clear()
  void clear();                              // the live line goes away: something else is printed
  void operator()(const std::string& what);  // may be called as often as one likes
  void line(const std::string& text);        // one that stays, on a terminal and in a pipe
  bool due() const;                          // whether a call now would be seen: what it says may cost time

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_, plain_, every_;
  bool shown_ = false;
  Clock::time_point next_;
  double interval_;  // seconds
};

// How far a run is, in the words of all commands: step, rate, loss, hypergradient norm, time left.
class RunProgress {
 public:
  // `total` = 0: not known. `done` steps were made before, by the run that this one goes on with.
  RunProgress(const CommonOptions& options, std::string command, int64_t total, int64_t done = 0);
  struct At {
    int64_t step = 0;
    double loss = std::numeric_limits<double>::quiet_NaN();  // NaN = not known
    double hypergradient = std::numeric_limits<double>::quiet_NaN();
    std::string more = {};
  };
  void operator()(const At& at);
  void line(const std::string& text) { progress_.line(text); }

 private:
  Progress progress_;
  std::string command_;
  int64_t total_, before_;
  std::chrono::steady_clock::time_point begin_;
};

std::string time_text(double seconds);  // 7 s, 1:05 min, 2:10 h

}  // namespace bilevel::cli
