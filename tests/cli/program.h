#pragma once
// Runs the program as a user types it and hands back what it printed.

#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/run/run_context.h"
#include "cli/command_line.h"
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

// config.json of a run.
inline nlohmann::json config_of(const std::string& folder) {
  return current_config(nlohmann::ordered_json::parse(read_text(folder + "/config.json")));
}

// The words of a plain command line; nothing where it is one for a shell (a pipe, a variable, a redirection).
inline std::optional<std::vector<std::string>> plain_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // a word
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (quote == '"' && (c == '$' || c == '`' || c == '\\')) {
        return std::nullopt;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (std::string_view("|&;<>()$`\\*?[]#~!{}").find(c) != std::string_view::npos) {
      return std::nullopt;
    } else if (c == ' ' || c == '\n' || c == '\t') {
      if (inside) words.push_back(std::exchange(word, ""));
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) return std::nullopt;
  if (inside) words.push_back(word);
  return words;
}

// As a process, by a shell, in a folder of its own.
inline Output run_by_shell(const std::string& arguments) {
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

// In a folder of its own, where a run without --out leaves its folder too. Without a process, which would
// take a second to start, unless the line needs a shell.
inline Output run_program(const std::string& arguments) {
  const auto words = plain_words(arguments);
  if (!words) return run_by_shell(arguments);
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const int threads = at::get_num_threads();
  Output output;
  output.exit_code = cli::run(*words, output.out, output.err);
  at::set_num_threads(threads);
  std::filesystem::current_path(before);
  return output;
}

// What it prints with --json.
inline nlohmann::json run_json(const std::string& arguments) {
  const Output output = run_program(arguments + " --json");
  if (output.exit_code != 0) throw std::runtime_error("bilevel " + arguments + ": " + output.err);
  return output.json();
}

}  // namespace bilevel::test
