// The rules of the house (CONTRIBUTING.md) that a compiler does not check: who may call autograd, and which
// way the dependencies point.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Source {
  std::string folder, name, text;  // core, core/oracle.cpp, what stands there without comments
};

std::string without_comments(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += line.substr(0, line.find("//")) + '\n';
  return result;
}

fs::path source_dir() {
  const char* root = std::getenv("BILEVEL_SOURCE_DIR");
  if (root == nullptr) throw std::runtime_error("BILEVEL_SOURCE_DIR is not set: run by ctest, or set it");
  return root;
}

// All files below a folder of the tree, by the folders in it.
std::vector<Source> sources_of(const char* top) {
  std::vector<Source> found;
  const fs::path root = source_dir() / top;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".h" && extension != ".cu" && extension != ".cuh") continue;
    const fs::path relative = fs::relative(entry.path(), root);
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    found.push_back({relative.begin()->string(), relative.generic_string(), without_comments(text.str())});
  }
  return found;
}

// All of bilevel/.
std::vector<Source> sources() {
  std::vector<Source> found = sources_of("bilevel");
  // The precompiled header and the one with all includes.
  std::erase_if(found, [](const Source& source) { return source.folder == source.name; });
  return found;
}

// The bilevel folders (and cli, reproduce, tests) that a file includes headers of.
std::set<std::string> included_folders(const Source& source) {
  static const std::regex include(R"(#include\s*["<](bilevel/(\w+)/|(cli|reproduce|tests|bench|examples)/))");
  std::set<std::string> folders;
  for (std::sregex_iterator it(source.text.begin(), source.text.end(), include), end; it != end; ++it) {
    folders.insert((*it)[2].matched ? (*it)[2].str() : (*it)[3].str());
  }
  return folders;
}

TEST(House, the_sources_are_found) {
  const auto all = sources();
  const auto has = [&](const char* name) {
    return std::any_of(all.begin(), all.end(), [&](const Source& s) { return s.name == name; });
  };
  EXPECT_TRUE(has("core/autograd.cpp"));
  EXPECT_TRUE(has("hypergradients/reverse.cpp"));
  EXPECT_TRUE(has("problems/registry.cpp"));
}

// Rule 1: a call that Oracle does not see is a cost that nobody counts.
TEST(House, only_core_autograd_calls_autograd) {
  static const std::regex call(
      R"(torch/csrc/autograd|torch/(autograd|torch|all)\.h|torch::autograd|autograd::(grad|backward)\s*\()"
      R"(|\bbackward\s*\(|requires_grad_\s*\(|AutoGradMode|GradMode::)");
  int calls_in_autograd = 0;
  for (const Source& source : sources()) {
    if (source.folder != "core" && source.folder != "hypergradients" && source.folder != "algorithms")
      continue;
    const bool calls = std::regex_search(source.text, call);
    if (source.name == "core/autograd.cpp") {
      calls_in_autograd += calls ? 1 : 0;
    } else {
      EXPECT_FALSE(calls) << source.name << " calls autograd: go through Oracle";
    }
  }
  EXPECT_EQ(calls_in_autograd, 1) << "the pattern no longer finds the calls it forbids elsewhere";
}

// Oracle counts; Problem hands its defaults to Oracle. Nobody else may take the way around the counter.
TEST(House, only_oracle_and_problem_use_core_autograd) {
  const std::set<std::string> allowed = {"core/autograd.cpp", "core/oracle.cpp", "core/problem.cpp"};
  std::set<std::string> users;
  for (const Source& source : sources()) {
    if (source.text.find("bilevel/core/autograd.h") != std::string::npos) users.insert(source.name);
  }
  EXPECT_EQ(users, allowed);
}

TEST(House, core_includes_no_header_from_another_folder) {
  for (const Source& source : sources()) {
    if (source.folder != "core") continue;
    for (const std::string& folder : included_folders(source)) EXPECT_EQ(folder, "core") << source.name;
  }
}

TEST(House, dependencies_point_one_way) {
  // What each folder may include besides itself. A folder that is not listed may include any but those above
  // it.
  const std::map<std::string, std::set<std::string>> may = {
      {"core", {}},
      {"fields", {}},
      {"data", {"core"}},
      {"distributed", {"core"}},
      {"hypergradients", {"core", "fields"}},
      {"algorithms", {"core", "fields", "hypergradients"}},
      {"problems", {"core", "data"}},
      {"tables", {"core", "data"}},
      // A search is an algorithm on a problem with a state on disk: the one folder that needs them all.
      {"nas", {"core", "data", "distributed", "fields", "hypergradients", "algorithms", "problems", "run"}},
      {"export", {"core", "data", "run"}},
      // So is learning across tasks.
      {"meta", {"core", "data", "distributed", "fields", "hypergradients", "algorithms", "problems", "run"}},
      // A page shows what a run's folder holds: cells are drawn and suspects listed, nothing is computed.
      {"report", {"clean", "core", "data", "fields", "nas", "run"}},
  };
  std::map<std::string, std::set<std::string>> edges;
  for (const Source& source : sources()) {
    for (const std::string& folder : included_folders(source)) {
      EXPECT_TRUE(folder != "cli" && folder != "reproduce" && folder != "tests" && folder != "bench" &&
                  folder != "examples")
          << source.name << " includes " << folder << "/: nothing depends on a program";
      if (folder == source.folder) continue;
      edges[source.folder].insert(folder);
      if (const auto allowed = may.find(source.folder); allowed != may.end()) {
        EXPECT_TRUE(allowed->second.count(folder)) << source.name << " includes bilevel/" << folder;
      }
    }
  }
  EXPECT_TRUE(edges["hypergradients"].count("core"));

  // No folder reaches itself, whatever folders there will be.
  for (const auto& [start, unused] : edges) {
    std::set<std::string> reached;
    std::function<void(const std::string&)> visit = [&](const std::string& folder) {
      for (const std::string& next : edges[folder]) {
        if (reached.insert(next).second) visit(next);
      }
    };
    visit(start);
    EXPECT_FALSE(reached.count(start)) << "bilevel/" << start << " depends on itself through other folders";
  }
}

TEST(House, contributing_says_what_every_folder_is_for) {
  std::ostringstream page;
  page << std::ifstream(source_dir() / "CONTRIBUTING.md").rdbuf();
  std::set<std::string> folders;
  for (const Source& source : sources()) folders.insert(source.folder);
  EXPECT_GE(folders.size(), 17U);
  for (const std::string& folder : folders) {
    EXPECT_NE(page.str().find("\n    bilevel/" + folder + "/ "), std::string::npos) << folder;
  }
}

// Whoever includes bilevel/bilevel.h can make every estimator and every algorithm.
TEST(House, the_header_of_all_has_every_estimator_and_algorithm) {
  std::ostringstream umbrella;
  umbrella << std::ifstream(source_dir() / "bilevel/bilevel.h").rdbuf();
  int found = 0;
  for (const Source& source : sources()) {
    if (source.folder != "algorithms" && source.folder != "hypergradients") continue;
    if (!source.name.ends_with(".h") || source.text.find(" : public ") == std::string::npos) continue;
    ++found;
    EXPECT_NE(umbrella.str().find("#include \"bilevel/" + source.name + "\""), std::string::npos)
        << "bilevel/bilevel.h does not include " << source.name;
  }
  EXPECT_GT(found, 30);
}

std::string without_strings(const std::string& text) {
  static const std::regex literal(R"re("([^"\\\n]|\\.)*")re");
  return std::regex_replace(text, literal, "\"\"");
}

// One word for one thing (the table in CONTRIBUTING.md). Keys of stored files keep their names: they stand in
// quotes.
TEST(House, old_words_do_not_come_back) {
  static const std::regex old_word(
      R"(\b(difference_mixed|mixed_product|mixed_derivative|\w*series_rate\w*|SeriesRate|\w*Callbacks|bound_error)"
      R"(|(Check|Clean|Interact|Learn|Search|Tune|Solve|Compare)Report|InnerRun|regulariser\w*|Regulariser\w*)"
      R"(|require_(rate|count|inner|outer|that|not_negative|fraction))\b)");
  EXPECT_TRUE(std::regex_search(without_strings("double series_rate = 0;"), old_word));
  EXPECT_FALSE(std::regex_search(without_strings("json.at(\"series_rate\")"), old_word));
  for (const char* top : {"bilevel", "cli", "reproduce", "examples"}) {
    for (const Source& source : sources_of(top)) {
      std::istringstream lines(without_strings(source.text));
      int64_t number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        std::smatch found;
        EXPECT_FALSE(std::regex_search(line, found, old_word))
            << top << '/' << source.name << ':' << number << ": " << found.str()
            << " is an old word; see Words in CONTRIBUTING.md";
      }
    }
  }
}

// What an option must be is said in one way: "rate = 0: must be ...", by core/require.h or as it says it.
// And a name that is not known: "algorithm 'gradient' is unknown: choose from ...", by refuse_unknown there.
TEST(House, refused_values_are_named_in_one_way) {
  static const std::regex bound(R"((= |'|operations )\{[^}]*\}'? must be|[:;] it must be)");
  static const std::regex name(R"('\{\}' is (unknown|not known)[:;]|choose one of|: choose \w+ or \w+")");
  const auto flat = [](const std::string& text) {  // a literal may go on in the next line
    return std::regex_replace(text, std::regex(R"("\s*\n\s*")"), "");
  };
  for (const Source& source : sources()) {
    if (source.folder == "distributed") continue;  // its names are an environment's
    const std::string text = flat(source.text);
    EXPECT_FALSE(std::regex_search(text, bound)) << source.name << ": put a colon before 'must be'";
    if (source.name == "core/require.cpp") {
      EXPECT_TRUE(std::regex_search(text, std::regex(R"('\{\}' is unknown: choose from \{\})")));
    } else {
      EXPECT_FALSE(std::regex_search(text, name)) << source.name << ": say it by refuse_unknown()";
    }
  }
}

// What is installed: bilevel.h, and all that it includes.
std::set<std::string> public_headers() {
  std::map<std::string, std::string> texts;
  for (const Source& source : sources_of("bilevel")) texts[source.name] = source.text;
  static const std::regex include(R"re(#include "bilevel/([^"]+)")re");
  std::set<std::string> found;
  std::vector<std::string> waiting = {"bilevel.h"};
  while (!waiting.empty()) {
    const std::string name = waiting.back();
    waiting.pop_back();
    if (!found.insert(name).second) continue;
    const std::string& text = texts.at(name);
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      waiting.push_back((*it)[1].str());
    }
  }
  return found;
}

TEST(House, internals_are_not_installed) {
  const std::set<std::string> installed = public_headers();
  EXPECT_TRUE(installed.contains("core/problem.h"));
  for (const std::string& name : installed) {
    EXPECT_FALSE(name.starts_with("nas/tape/")) << name << ": a tape's passes and kernels";
    if (name == "run/blas_kernels.h") continue;  // which of OpenBLAS's run, for whoever asks
    EXPECT_EQ(name.find("kernels"), std::string::npos) << name;
  }
  for (const char* internal : {"precompiled.h",
                               "core/autograd.h",
                               "core/solver_support.h",
                               "core/fused_vectors.h",
                               "core/require.h",
                               "hypergradients/from_settings.h",
                               "hypergradients/checkpoints.h",
                               "run/archive.h",
                               "run/kept_loop.h",
                               "run/json_value.h",
                               "run/event_file.h",
                               "data/byte_source.h",
                               "data/line_reader.h",
                               "data/md5.h",
                               "jobs/clean_run.h",
                               "jobs/unread.h",
                               "fields/renamed.h",
                               "nas/training_pass.h",
                               "report/curves.h",
                               "tables/cross_fit.h",
                               "tables/held_out_loss.h",
                               "tables/softmax_fit.h"}) {
    EXPECT_FALSE(installed.contains(internal)) << internal;
  }
}

// Whoever includes bilevel/bilevel.h can run every job.
TEST(House, the_header_of_all_has_every_job) {
  static const std::regex job(R"(\w+JobResult run_\w+\()");
  const std::set<std::string> installed = public_headers();
  int found = 0;
  for (const Source& source : sources()) {
    if (source.folder != "jobs" || !source.name.ends_with(".h")) continue;
    if (!std::regex_search(source.text, job)) continue;
    ++found;
    EXPECT_TRUE(installed.contains(source.name)) << "bilevel/bilevel.h does not reach " << source.name;
  }
  EXPECT_GE(found, 12);
}

// A look at a number makes a GPU wait. Who has an oracle asks by its checks, which a search puts off.
TEST(House, whoever_has_an_oracle_asks_it_whether_numbers_are_finite) {
  static const std::regex around(R"((^|[^.>\w])(all_finite|finite_number)\(|outer\(\)\.step\()");
  const std::set<std::string> allowed = {
      "core/finite.cpp", "core/finite.h",
      "hypergradients/nystrom.cpp",  // before a factorisation, which waits in any case
      "meta/learn.cpp",              // which is not put off
  };
  for (const Source& source : sources()) {
    if (allowed.contains(source.name)) continue;
    EXPECT_FALSE(std::regex_search(source.text, around)) << source.name;
  }
}

// The parser of a command line is the commands' affair.
TEST(House, the_papers_items_know_no_command_line) {
  const auto files = sources_of("reproduce");
  EXPECT_GT(files.size(), 20U);
  for (const Source& source : files) {
    for (const char* of_the_program : {"#include \"cli/", "CLI/CLI.hpp"}) {
      EXPECT_EQ(source.text.find(of_the_program), std::string::npos)
          << "reproduce/" << source.name << " includes " << of_the_program;
    }
  }
}

// Messages name options by named() (bilevel/fields/option_text.h), so that users of C++ and Python read the
// name of a field, and users of the program that of a flag.
TEST(House, no_message_of_the_library_names_a_flag) {
  // Text that is kept in results and shown as it is, or that is typed; and folders that know no fields.
  const std::set<std::string> allowed = {
      "algorithms/failure.cpp", "algorithms/registry.cpp",
      "check/check.cpp",        "check/diagnose_recommendation.cpp",
      "check/verdict.cpp",      "clean/clean.cpp",
      "interact/interact.cpp",  "meta/learn.cpp",
      "nas/search.cpp",         "nas/search_record.cpp",
      "run/machine.cpp",
      "jobs/compare.cpp",  // a heading of its help
      "report/plot.cpp",
      "report/report.cpp",  // command lines
  };
  static const std::regex literal(R"("(?:[^"\\\n]|\\.)*")"), flag(R"((^"|[ (`'])--[a-z][a-z-]+)"),
      command(R"(`bilevel [^`]*`?)");
  std::set<std::string> found;
  for (const Source& source : sources()) {
    if (source.folder == "data" || source.folder == "fields") continue;
    for (std::sregex_iterator it(source.text.begin(), source.text.end(), literal), end; it != end; ++it) {
      const std::string text = std::regex_replace(it->str(), command, "");
      if (!std::regex_search(text, flag)) continue;
      found.insert(source.name);
      EXPECT_TRUE(allowed.contains(source.name)) << source.name << ": " << text << ": use named()";
    }
  }
  for (const std::string& name : allowed) {
    EXPECT_TRUE(found.contains(name)) << name << " names no flag any more: take it off the list";
  }
}

}  // namespace
