// `bilevel count`: parameters and multiply-adds of cells, without training or building anything.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/network.h"
#include "cli/commands.h"
#include "cli/json.h"

namespace bilevel::cli {
namespace {

constexpr int64_t largest_list = int64_t{1} << 30;

struct Options {
  std::string space = "nasbench201";
  std::vector<std::string> architectures;
  std::string file;
  int64_t random = 0;  // cells drawn
  uint64_t seed = 0;
  nas::NetworkOptions network;
  int64_t image_size = 0;
  bool json = false;
};

struct Count {
  std::string genotype;
  int64_t parameters = 0, multiply_adds = 0;
};

Count count(const nas::SearchSpace& space, std::string_view text, const nas::NetworkOptions& options) {
  const nas::Network network(space, nas::parse_genotype(space, text), options);
  return {nas::genotype_text(network.genotype()), network.parameters(), network.multiply_adds()};
}

void count_file(const nas::SearchSpace& space, const Options& o, std::vector<Count>& counts) {
  LineReader lines(o.file, largest_list);
  std::string_view line;
  while (lines.next(line)) {
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    try {
      counts.push_back(count(space, line, o.network));
    } catch (const std::invalid_argument& error) {
      line_error(o.file, lines.number(), fmt::format("a genotype of {}", space.name), error.what(),
                 "lines that begin with # are passed over");
    }
  }
  if (counts.empty()) {
    throw std::runtime_error(fmt::format("{}: no genotype is in it, only empty lines and comments", o.file));
  }
}

// From a stream of its own: these are not the cells that `bilevel search --method random` draws under the
// seed.
void count_random(const nas::SearchSpace& space, const Options& o, std::vector<Count>& counts) {
  Random random(named_seed(o.seed, "count"));
  for (int64_t i = 0; i < o.random; ++i) {
    counts.push_back(count(space, nas::genotype_text(nas::random_genotype(space, random)), o.network));
  }
}

void print_json(const std::vector<Count>& counts) {
  Json out = {{"genotypes", Json::array()}};
  for (const Count& c : counts) {
    out["genotypes"].push_back(
        {{"genotype", c.genotype}, {"parameters", c.parameters}, {"multiply_adds", c.multiply_adds}});
  }
  fmt::print("{}\n", out.dump());
}

void print_text(const std::vector<Count>& counts) {
  fmt::print("{:>12}{:>16}  genotype\n", "parameters", "multiply-adds");
  for (const Count& c : counts) fmt::print("{:>12}{:>16}  {}\n", c.parameters, c.multiply_adds, c.genotype);
}

void run(const CLI::App& command, Options& o) {
  const nas::SearchSpace space = nas::make_space(o.space);
  if (o.random < 0) throw std::invalid_argument(fmt::format("--random {}: must be at least 0", o.random));
  if (o.architectures.empty() && o.file.empty() && o.random == 0) {
    throw std::invalid_argument(
        "count: say which cells by --arch TEXT or --file FILE, or how many by --random N");
  }
  if (o.network.imagenet_stem && command.count("--classes") == 0) o.network.classes = 1000;
  if (command.count("--image-size") == 0) o.image_size = o.network.imagenet_stem ? 224 : 32;
  o.network.height = o.network.width = o.image_size;
  o.network.completed(space.kind).validate(space.kind);  // so that no line of a file is blamed for an option
  std::vector<Count> counts;
  for (const std::string& text : o.architectures) counts.push_back(count(space, text, o.network));
  if (!o.file.empty()) count_file(space, o, counts);
  count_random(space, o, counts);
  o.json ? print_json(counts) : print_text(counts);
}

}  // namespace

void add_count_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand("count", "Parameters and multiply-adds of cells in their networks");
  command->footer(
      "Multiply-adds are those of convolutions and linear layers for one image; learned norms count as\n"
      "parameters, the second head of DARTS's training does not.\n"
      "Examples:\n"
      "  bilevel count --arch '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|'\n"
      "  bilevel count --file cells.txt --channels 8 --json\n"
      "  bilevel count --random 5 --seed 1\n"
      "  bilevel count --space darts --imagenet --arch 'normal: (sep_conv_3x3,0)... reduce: ...'");
  const auto o = std::make_shared<Options>();
  command->add_option("--space", o->space, "search space that the cells are of")->capture_default_str();
  command->add_option("--arch", o->architectures, "genotype, as text or JSON; may be given many times")
      ->allow_extra_args(false);
  command->add_option("--file", o->file, "genotypes, one per line; # begins a comment");
  command->add_option("--random", o->random, "this many cells drawn uniformly");
  command->add_option("--seed", o->seed, "of --random")->capture_default_str();
  command->add_option("--channels", o->network.channels, "of the first stage; 0 = the space's own")
      ->capture_default_str();
  command->add_option("--cells", o->network.cells, "a stage in nasbench201, else in all; 0 = the space's own")
      ->capture_default_str();
  command->add_option("--image-size", o->image_size, "height and width; 32, with --imagenet 224");
  command->add_option("--input-channels", o->network.input_channels, "of the images")->capture_default_str();
  command->add_option("--classes", o->network.classes, "10, with --imagenet 1000");
  command->add_flag("--imagenet", o->network.imagenet_stem,
                    "darts: the network for ImageNet, three halvings first, 48 channels, 14 cells");
  command->add_flag("--json", o->json, "print one JSON object on stdout and nothing else");
  command->callback([command, o] { run(*command, *o); });
}

}  // namespace bilevel::cli
