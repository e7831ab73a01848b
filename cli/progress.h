#pragma once
// What a person who waits sees on stderr: one live line on a terminal, a plain line now and then in a pipe,
// nothing under --quiet.

#include <chrono>
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

std::string time_text(double seconds);  // 7 s, 1:05 min, 2:10 h

}  // namespace bilevel::cli
