// A hint that names an option which does not exist is worse than none. Every --option that a message of the
// sources, a help text or a document names is one that some command has; and in a command line that a
// document or a help text shows, it is one of that very command.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using Names = std::set<std::string>;

// Of cmake, Google Test and npm; one of earlier versions' run folders; and those of `bilevel help`, which is
// no command of its own.
const Names of_other_programs{"--preset",
                              "--build",
                              "--install",
                              "--prefix",
                              "--component",
                              "--gtest",
                              "--ignore-scripts",
                              "--auto-choice",
                              "--man",
                              "--man-pages",
                              "--markdown",
                              "--no-python",
                              "--nproc-per-node",  // torchrun's
                              "--no-build-isolation",
                              "--system-site-packages",  // of pip and venv
                              "--variant"};              // of debootstrap

Names options_in(const std::string& text) {
  static const std::regex option("(^|[^A-Za-z0-9_-])(--[a-z][a-z0-9]*(-[a-z0-9]+)*)");
  Names found;
  for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it)
    found.insert((*it)[2]);
  return found;
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct HelpOfCommand {
  std::string help;
  Names options;
};

// "data show" and the like too.
class Commands {
 public:
  Commands() { add(""); }
  const std::map<std::string, HelpOfCommand>& all() const { return all_; }
  Names every_option() const {
    Names options;
    for (const auto& [name, command] : all_) options.insert(command.options.begin(), command.options.end());
    return options;
  }

 private:
  void add(const std::string& name) {
    Output output = run_program(name + " --help");
    if (output.out.find("--help-all") != std::string::npos) output = run_program(name + " --help-all");
    EXPECT_EQ(output.exit_code, 0) << name;
    HelpOfCommand& command = all_[name];
    command.help = output.out;
    bool subcommands = false;
    std::vector<std::string> below;
    for (const std::string& line : lines_of_text(output.out)) {
      if (line.starts_with("Subcommands:")) subcommands = true;
      if (line.starts_with("Examples:")) break;
      // Options and subcommands are indented by a few blanks, what explains them by many.
      const size_t begin = line.find_first_not_of(' ');
      if (begin == std::string::npos || begin < 2 || begin > 6) continue;
      const std::string word = line.substr(begin, line.find(' ', begin) - begin);
      if (word.starts_with("-")) {
        const Names named = options_in(std::regex_replace(word, std::regex(","), " "));
        command.options.insert(named.begin(), named.end());
      } else if (subcommands && begin == 2) {
        below.push_back(word);
      }
    }
    for (const std::string& one : below) add(name.empty() ? one : name + " " + one);
  }

  std::map<std::string, HelpOfCommand> all_;
};

const Commands& helped_commands() {
  static const Commands all;
  return all;
}

std::string source_folder() {
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  if (source == nullptr) throw std::runtime_error("BILEVEL_SOURCE_DIR is not set: run the tests by ctest");
  return source;
}

std::vector<std::string> files_in(const std::string& folder, const std::string& ending) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() + "/" + folder)) {
    if (entry.is_regular_file() && entry.path().string().ends_with(ending)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty()) << folder;
  return files;
}

std::vector<std::string> documents() {
  std::vector<std::string> files = files_in("docs", ".md");
  files.push_back(source_folder() + "/README.md");
  files.push_back(source_folder() + "/CONTRIBUTING.md");
  return files;
}

// The string literals of a C++ file; neighbours, which the compiler joins, are joined.
std::string literals_of(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text[i] == '\'' && i + 2 < text.size()) {  // a character, or a digit separator
      const size_t end = text[i + 1] == '\\' ? i + 3 : i + 2;
      if (end < text.size() && text[end] == '\'') i = end;
    } else if (text.compare(i, 3, "R\"(") == 0) {
      const size_t end = std::min(text.find(")\"", i), text.size());
      result += text.substr(i + 3, end - i - 3) + "\n";
      i = end + 1;
    } else if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] != '\\') {
          result += text[i];
        } else if (text[++i] == 'n') {
          result += '\n';
        }
      }
      const size_t next = text.find_first_not_of(" \n\t", i + 1);
      if (next == std::string::npos || text[next] != '"') result += "\n";
    }
  }
  return result;
}

// Command lines of the program with the lines that they go on in.
std::vector<std::pair<std::string, Names>> shown_commands(const std::string& text) {
  std::vector<std::pair<std::string, Names>> shown;
  static const std::regex call("bilevel ((data|runs) )?([a-z]+)( |$)");
  const std::vector<std::string> lines = lines_of_text(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    while (line.ends_with('\\') && i + 1 < lines.size()) line = line.substr(0, line.size() - 1) + lines[++i];
    std::smatch match;
    if (!line.starts_with("  ") || !std::regex_search(line, match, call)) continue;
    std::string rest = line.substr(static_cast<size_t>(match.position()));
    rest = rest.substr(0, rest.find(" #"));
    // `bilevel launch --processes 2 -- solve ...`: what follows is another command line.
    if (const size_t other = rest.find(" -- "); other != std::string::npos) {
      const std::vector<std::pair<std::string, Names>> started =
          shown_commands("  bilevel " + rest.substr(other + 4));
      shown.insert(shown.end(), started.begin(), started.end());
      rest = rest.substr(0, other);
    }
    const auto& all = helped_commands().all();
    std::string name = match[3];
    if (match[1].matched && all.count(match[1].str() + name) > 0) name = match[1].str() + name;
    if (match[1].matched && all.count(name) == 0) name = match[2];
    if (all.count(name) > 0) shown.emplace_back(name, options_in(rest));
  }
  return shown;
}

TEST(NamedOptions, HelpIsReadAsItShould) {
  const auto& all = helped_commands().all();
  ASSERT_EQ(all.count("search"), 1U);
  ASSERT_EQ(all.count("data show"), 1U);
  EXPECT_GT(all.size(), 15U);
  for (const char* name : {"--inner-rate", "--no-flip", "--seed", "--out", "--json", "--terms"}) {
    EXPECT_EQ(all.at("search").options.count(name), 1U) << name;
  }
  EXPECT_EQ(all.at("search").options.count("--corruption"), 0U);
  EXPECT_EQ(options_in("by --one, (--two-three) or `--four`; not a--b, --- or x --Y"),
            (Names{"--one", "--two-three", "--four"}));
  EXPECT_EQ(literals_of("f(\"a \" /* */ + 'x', \"--b \"\n  \"c\\\"\"); // \"d\"\nR\"(e)\"").find("d\""),
            std::string::npos);
  EXPECT_THAT(literals_of("f(\"a \", \"--b \"\n  \"c\"); g(R\"(--e)\")"),
              ::testing::AllOf(::testing::HasSubstr("--b c\n"), ::testing::HasSubstr("--e\n")));
}

TEST(NamedOptions, EveryOptionInADocumentExists) {
  Names known = helped_commands().every_option();
  known.insert(of_other_programs.begin(), of_other_programs.end());
  for (const char* folder : {"bench", "scripts"}) {  // whose programs the documents call too
    for (const std::string& path : files_in(folder, "")) known.merge(options_in(read_text(path)));
  }
  size_t seen = 0;
  for (const std::string& path : documents()) {
    for (const std::string& option : options_in(read_text(path))) {
      ++seen;
      EXPECT_EQ(known.count(option), 1U) << path << ": " << option << " is an option of no command";
    }
  }
  EXPECT_GT(seen, 200U);
}

// The library marks the names of fields in its messages: named("inner_rate").
Names marked_in(const std::string& text) {
  static const std::regex mark("named\\(\"([a-z][a-z0-9_]*)\"");
  Names found;
  for (std::sregex_iterator it(text.begin(), text.end(), mark), end; it != end; ++it)
    found.insert(flag_of((*it)[1]));
  return found;
}

TEST(NamedOptions, EveryOptionInAMessageExists) {
  Names known = helped_commands().every_option();
  known.insert(of_other_programs.begin(), of_other_programs.end());
  size_t seen = 0;
  for (const char* folder : {"bilevel", "cli"}) {
    for (const char* ending : {".cpp", ".h"}) {
      for (const std::string& path : files_in(folder, ending)) {
        if (path.ends_with("report/style.cpp")) continue;  // the variables of a style sheet look alike
        const std::string text = read_text(path);
        Names options = options_in(literals_of(text));
        options.merge(marked_in(text));
        for (const std::string& option : options) {
          ++seen;
          EXPECT_EQ(known.count(option), 1U) << path << ": " << option << " is an option of no command";
        }
      }
    }
  }
  EXPECT_GT(seen, 300U);
}

TEST(NamedOptions, ShownCommandLinesUseTheirOwnOptions) {
  size_t seen = 0;
  const auto check = [&](const std::string& where, const std::string& text) {
    for (const auto& [name, options] : shown_commands(text)) {
      ++seen;
      for (const std::string& option : options) {
        EXPECT_EQ(helped_commands().all().at(name).options.count(option), 1U)
            << where << ": `bilevel " << name << "` has no " << option;
      }
    }
  };
  for (const std::string& path : documents()) check(path, read_text(path));
  for (const auto& [name, command] : helped_commands().all()) check(name + " --help", command.help);
  EXPECT_GT(seen, 100U);
}

}  // namespace
}  // namespace bilevel::test
