// Options from a file: a run's config.json, other JSON, or TOML.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/run_options.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int read(std::string_view bytes) {
  CLI::App command("a command with options of every kind", "solve");
  double rate = 0;
  int64_t steps = 0;
  bool exact = false;
  std::string name;
  std::vector<int> sizes;
  command.add_option("--rate", rate)->check(CLI::PositiveNumber);
  command.add_option("--steps", steps)->check(CLI::Range(0, 100));
  command.add_flag("--exact", exact);
  command.add_option("--name", name)->check(CLI::IsMember({"one", "two"}));
  command.add_option("--sizes", sizes)->delimiter(',');
  cli::RunFlags flags;
  cli::CommonOptions common;
  cli::add_run_options(command, flags);
  cli::add_common_options(command, common);
  flags.config = path_of(bytes);
  return taken<std::invalid_argument>([&] {
    cli::take_options(command, flags, common);
    require(rate >= 0 && steps >= 0 && steps <= 100, "config: an option beyond its bound");
    (void)cli::options_json(command);
  });
}

const Register target("config", read);

}  // namespace
}  // namespace bilevel::fuzz
