#include "cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/data/file_error.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/renamed.h"
#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/machine.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/did_you_mean.h"
#include "cli/help.h"
#include "cli/man.h"
#include "cli/option_names.h"
#include "cli/option_rows.h"
#include "cli/ranks.h"

namespace bilevel::cli {
namespace {

std::string version_text() {
  const MachineFacts facts = machine_facts();
  std::string text = fmt::format("bilevel {}\nLibTorch {}{}\nBLAS {}", facts.version, facts.torch,
                                 facts.cuda ? " with CUDA" : "", facts.blas);
  if (const BlasKernels kernels = blas_kernels(); !kernels.running.empty()) {
    text += fmt::format("\nBLAS kernels {}", kernels.running);
    if (kernels.own_setting) text += ", as set by OPENBLAS_CORETYPE";
    if (kernels.fallback()) text += fmt::format("; this processor can run {}", kernels.best);
  }
  for (const std::string& warning : facts.warnings) text += "\nwarning: " + warning;
  return text;
}

std::string where_help_is(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return fmt::format("see `bilevel {}--help` for usage",
                     chosen.empty() ? "" : chosen.front()->get_name() + " ");
}

// `data show` is one of `data`; an option group is a command without a name to CLI11.
const CLI::App& chosen_command(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) {
    if (!sub->get_name().empty()) return chosen_command(*sub);
  }
  return app;
}

// CLI11 would only say that a command is missing.
void require_known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return;
    names.push_back(command->get_name());
  }
  const std::string near = nearest(argv[1], names);
  throw std::invalid_argument(
      fmt::format("command '{}' is unknown: choose from {}; {}{}", argv[1], fmt::join(names, ", "),
                  near.empty() ? "" : fmt::format("did you mean {}? ", near), where_help_is(app)));
}

// With those of its option groups.
std::vector<const CLI::Option*> all_options(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* a) { return a->get_name().empty(); })) {
    const std::vector<const CLI::Option*> more = all_options(*group);
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

bool is_flag(const std::string& word) {
  return word.starts_with("--") || (word.size() > 1 && word[0] == '-' && std::isalpha(word[1]) != 0);
}

// "option --dta is unknown; did you mean --data?"
std::string unknown_option(const std::string& flag, const std::vector<std::string>& flags) {
  const std::string now = flag_of(current_field(field_name(flag)));
  if (now != flag && std::find(flags.begin(), flags.end(), now) != flags.end()) {
    return fmt::format("option {} is unknown; it is now called {}", flag, now);
  }
  const std::string near = nearest(flag, flags);
  return fmt::format("option {} is unknown{}", flag,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

// The words that no option takes, in the order in which they were typed; empty if all were taken. A value
// after an unknown option is left over with it, and not mentioned.
std::string unknown_words(const CLI::App& command, const std::vector<std::string>& typed) {
  std::vector<std::string> flags, unknown, others;
  for (const CLI::Option* option : all_options(command)) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::vector<std::string> left = command.remaining();
  for (const std::string& word : typed) {
    if (std::find(left.begin(), left.end(), word) == left.end()) continue;
    if (is_flag(word)) {
      unknown.push_back(unknown_option(word.substr(0, word.find('=')), flags));
    } else {
      others.push_back(fmt::format("'{}'", word));
    }
  }
  if (!unknown.empty()) return fmt::format("{}", fmt::join(unknown, "; "));
  if (others.empty()) return "";
  return fmt::format("{}: no option precedes {}", fmt::join(others, ", "),
                     others.size() == 1 ? "it" : "them");
}

// An option that was mistyped comes before one that is missing for that reason.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& typed) {
  const std::string unknown = unknown_words(chosen_command(app), typed);
  const bool is_about_all = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                            dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  return is_about_all && !unknown.empty() ? unknown : error.what();
}

// A missing file with the option that named it.
std::string with_option_of_file(const CLI::App& command, const MissingFileError& error) {
  for (const CLI::Option* option : all_options(command)) {
    const std::vector<std::string> values = option->results();
    if (option->nonpositional() && std::find(values.begin(), values.end(), error.path()) != values.end()) {
      return fmt::format("{} {}", option->get_name(), error.what());
    }
  }
  return error.what();
}

// `bilevel help --markdown` and `bilevel help solve --markdown` print all options as tables, --man in their
// place as manual pages; `bilevel help --man-pages DIR` writes these all.
bool print_reference(const CLI::App& program, const std::vector<std::string>& words) {
  if (words.size() < 3 || words[1] != "help") return false;
  if (words[2] == "--man-pages") {
    if (words.size() != 4) throw std::invalid_argument("help --man-pages takes one folder");
    write_man_pages(program, words[3]);
    return true;
  }
  const auto is_form = [](const std::string& word) { return word == "--markdown" || word == "--man"; };
  const auto form = std::find_if(words.begin() + 2, words.end(), is_form);
  if (form == words.end()) return false;
  std::vector<std::string> names(words.begin() + 2, words.end());
  std::erase(names, *form);
  const bool is_man = *form == "--man";
  if (names.empty()) {
    fmt::print("{}", is_man ? program_man(program) : program_markdown(program));
  } else {
    const std::string name = fmt::format("{}", fmt::join(names, " ")),
                      asked_by = fmt::format("help {}", *form);
    const CLI::App& command = command_of(program, name, asked_by);
    fmt::print("{}", is_man ? command_man(command) : command_markdown(command));
  }
  return true;
}

// `bilevel help solve` is `bilevel solve --help`.
std::vector<std::string> words_of_line(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (words.size() > 1 && words[1] == "help") {
    words.erase(words.begin() + 1);
    words.emplace_back("--help");
  }
  return words;
}

int parse_and_run(int argc, char** argv) {
  int exit_code = success;
  const std::unique_ptr<CLI::App> app = make_program(exit_code);
  if (print_reference(*app, {argv, argv + argc})) return success;
  std::vector<std::string> words = words_of_line(argc, argv);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  const int count = static_cast<int>(pointers.size());
  require_known_command(*app, count, pointers.data());
  if (count > 1 && words[1][0] != '-') require_command_for_ranks(words[1]);
  try {
    app->parse(count, pointers.data());
  } catch (const CLI::Success& help_or_version) {
    // CLI11 would print to std::cout, whose failures are not noticed.
    std::ostringstream text;
    const int code = app->exit(help_or_version, text, text);
    fmt::print("{}", text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(
        fmt::format("{}\n{}", parse_message(*app, error, words), where_help_is(*app)));
  } catch (const OptionError& error) {
    throw std::invalid_argument(flag_text(error.marked()));
  } catch (const RunError& error) {
    throw std::runtime_error(flag_text(error.marked()));
  } catch (const MissingFileError& error) {
    throw std::runtime_error(with_option_of_file(chosen_command(*app), error));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(with_option_names(chosen_command(*app), error.what()));
  }
  return exit_code;
}

}  // namespace

std::unique_ptr<CLI::App> make_program(int& exit_code) {
  auto made = std::make_unique<CLI::App>(
      "Gradient-based bilevel optimisation: min_x f(x, w*(x)) such that w*(x) = argmin_w g(x, w)");
  CLI::App& app = *made;
  app.name("bilevel");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(
      "bilevel COMMAND --help, or bilevel help COMMAND, shows a command's options; bilevel help --markdown "
      "or --man all options of all commands.");
  add_search_command(app, exit_code);
  add_clean_command(app, exit_code);
  add_tune_command(app, exit_code);
  add_interact_command(app, exit_code);
  add_solve_command(app, exit_code);
  add_compare_command(app, exit_code);
  add_reproduce_command(app, exit_code);
  add_check_command(app, exit_code);
  add_diagnose_command(app, exit_code);
  add_launch_command(app, exit_code);
  add_train_command(app, exit_code);
  add_learn_command(app, exit_code);
  add_adapt_command(app, exit_code);
  add_predict_command(app, exit_code);
  add_export_command(app, exit_code);
  add_runs_command(app, exit_code);
  add_show_command(app, exit_code);
  add_report_command(app, exit_code);
  add_count_command(app, exit_code);
  add_data_command(app, exit_code);
  add_query_command(app, exit_code);
  add_draw_command(app, exit_code);
  add_list_command(app, exit_code);
  add_completion_command(app, exit_code);
  return made;
}

int run_command_line(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const NotFiniteError& error) {
    fmt::print(stderr, "bilevel: {}\n", flag_text(marked_message(error)));
    return not_finite;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "bilevel: {}\n", error.what());
    return bad_input;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "bilevel: {}\n", error.what_without_backtrace());
    return failure;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "bilevel: out of memory: try a smaller problem, fewer kept steps or --dtype float\n");
    return failure;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bilevel: {}\n", error.what());
    return failure;
  }
}

}  // namespace bilevel::cli
