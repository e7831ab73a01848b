#pragma once
// What fuzzing runs: one target per format, each in a file of its own here. A target gives bytes to readers
// and lets nothing pass but what they promise, a result or their documented exception. libFuzzer drives one
// target per program (driver.cpp); tests/fuzz replays the stored inputs through all of them.

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel::fuzz {

struct Target {
  std::string name;  // also of its folder in tests/fuzz/corpus
  // How many of its readers took the bytes. An exception that goes through is a finding.
  int (*read)(std::string_view bytes);
};

std::vector<Target>& targets();  // those that are linked in

struct Register {
  Register(const char* name, int (*read)(std::string_view)) { targets().push_back({name, read}); }
};

// A path at which a reader of files finds these bytes, until the next call for the same `slot`; a file in
// memory, as a disk would be the slowest part of it.
std::string path_of(std::string_view bytes, size_t slot = 0);
// A folder that holds them as the file `name`, until the next call for the same name.
std::string folder_of(std::string_view bytes, const std::string& name);

// 1 if `read` returns, 0 if it throws Refusal, which is what its header promises for bytes that are wrong.
template <typename Refusal = std::runtime_error, typename Read>
int taken(const Read& read) {
  try {
    read();
    return 1;
  } catch (const Refusal&) {
    return 0;
  }
}

// The same for a reader of files, whose message must say which file it was.
template <typename Read>
int taken_file(const std::string& path, const Read& read) {
  std::string message;
  try {
    read(path);
    return 1;
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  if (message.find(path) == std::string::npos) {
    throw std::logic_error(fmt::format("a message that does not name the file: {}", message));
  }
  return 0;
}

// What a target knows about a result that was read; a violation is a finding too.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace bilevel::fuzz
