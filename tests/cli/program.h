#pragma once
// Runs the program as a user does and hands back what it printed.

#include <unistd.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/temporary_folder.h"

namespace bilevel::test {

struct Output {
  int exit_code = -1;
  std::string out, err;
  nlohmann::json json() const {
    return nlohmann::json::parse(out);
  }  // throws unless stdout is one JSON value
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// In a folder of its own, where a run without --out leaves its folder too.
inline Output run_program(const std::string& arguments) {
  const char* program = std::getenv("BILEVEL_PROGRAM");
  if (program == nullptr) throw std::runtime_error("BILEVEL_PROGRAM is not set: run the tests by ctest");
  const TemporaryFolder folder;
  const std::string command = "cd '" + folder / "" + "' && '" + std::string(program) + "' " + arguments +
                              " >'" + folder / "out" + "' 2>'" + folder / "err" + "'";
  const int status = std::system(command.c_str());
  Output output;
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  output.out = read_text(folder / "out");
  output.err = read_text(folder / "err");
  return output;
}

}  // namespace bilevel::test
