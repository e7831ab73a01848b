// `bilevel count`: parameters and multiply-adds of cells, without training or building anything.

#include "bilevel/jobs/count.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

void print_count(const CountJobResult& result) {
  fmt::print("{:>12}{:>16}  genotype\n", "parameters", "multiply-adds");
  for (const CellCount& c : result.cells) {
    fmt::print("{:>12}{:>16}  {}\n", c.parameters, c.multiply_adds, c.genotype);
  }
}

}  // namespace

void add_count_command(CLI::App& app, int& exit_code) {
  add_question<CountJobOptions>(
      app, exit_code,
      {"count", "Count the parameters and multiply-adds of cells in their networks",
       "Multiply-adds are those of convolutions and linear layers for one image; learned norms count as\n"
       "parameters, the second head of DARTS's training does not.\n"
       "Examples:\n"
       "  bilevel count --arch '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|'\n"
       "  bilevel count --file cells.txt --channels 8 --json\n"
       "  bilevel count --random 5 --seed 1\n"
       "  bilevel count --space darts --imagenet --random 3"},
      run_count, print_count);
}

}  // namespace bilevel::cli
