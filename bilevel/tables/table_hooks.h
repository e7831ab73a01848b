#pragma once
// What a job on a table tells and asks along the way.

#include <functional>
#include <string>

namespace bilevel {

struct TableHooks {
  std::function<void(const std::string& what)> progress = {};
  std::function<void()> between_fits = {};  // may throw to end the job
  void say(const std::string& what) const {
    if (progress) progress(what);
    if (between_fits) between_fits();
  }
};

}  // namespace bilevel
