// The program `bilevel`: one command each for what people do with bilevel problems. This file knows the
// commands' names and how errors are shown; everything else is in one file per command.

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/run/block_cache.h"
#include "bilevel/run/machine.h"
#include "cli/commands.h"
#include "cli/common.h"

namespace {

std::string version_text() {
  const bilevel::MachineFacts facts = bilevel::machine_facts();
  std::string text = fmt::format("bilevel {}\nLibTorch {}{}\nBLAS {}", facts.version, facts.torch,
                                 facts.cuda ? " with CUDA" : "", facts.blas);
  for (const std::string& warning : facts.warnings) text += "\nwarning: " + warning;
  return text;
}

std::string where_help_is(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return fmt::format("`bilevel {}--help` shows what can be said",
                     chosen.empty() ? "" : chosen.front()->get_name() + " ");
}

// CLI11 would only say that a command is missing.
void require_known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return;
    names.push_back(command->get_name());
  }
  throw std::invalid_argument(fmt::format("command '{}' is unknown: choose from {}; {}", argv[1],
                                          fmt::join(names, ", "), where_help_is(app)));
}

int run(int argc, char** argv) {
  using namespace bilevel::cli;
  CLI::App app{"Gradient-based bilevel optimisation: min_x f(x, w*(x)) such that w*(x) = argmin_w g(x, w)"};
  app.name("bilevel");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer("bilevel COMMAND --help shows a command's options.");
  int exit_code = success;
  add_search_command(app, exit_code);
  add_clean_command(app, exit_code);
  add_tune_command(app, exit_code);
  add_interact_command(app, exit_code);
  add_solve_command(app, exit_code);
  add_compare_command(app, exit_code);
  add_reproduce_command(app, exit_code);
  add_check_command(app, exit_code);
  add_diagnose_command(app, exit_code);
  add_train_command(app, exit_code);
  add_learn_command(app, exit_code);
  add_adapt_command(app, exit_code);
  add_runs_command(app, exit_code);
  add_show_command(app, exit_code);
  add_report_command(app, exit_code);
  add_count_command(app, exit_code);
  add_data_command(app, exit_code);
  add_query_command(app, exit_code);
  add_draw_command(app, exit_code);
  add_list_command(app, exit_code);
  require_known_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(fmt::format("{}\n{}", error.what(), where_help_is(app)));
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace bilevel::cli;
  bilevel::use_block_cache();
  try {
    return run(argc, argv);
  } catch (const bilevel::NotFiniteError& error) {
    fmt::print(stderr, "bilevel: {}\n", error.what());
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
