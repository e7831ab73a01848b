// The program `bilevel`: one command each for what people do with bilevel problems. program.cpp knows the
// commands' names and how errors are shown; everything else is in one file per command.

#include "bilevel/run/block_cache.h"
#include "bilevel/run/restart.h"
#include "cli/command_line.h"
#include "cli/standard_streams.h"

int main(int argc, char** argv) {
  bilevel::restart_with_best_settings(argv);  // may start the program again, with the streams as they came
  bilevel::cli::guard_standard_streams();
  bilevel::use_block_cache();
  return bilevel::cli::flush_standard_output(bilevel::cli::run_command_line(argc, argv));
}
