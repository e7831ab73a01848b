// `bilevel draw`: a genotype as a picture, by graphviz.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "bilevel/data/write_file.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/report/picture.h"
#include "cli/commands.h"
#include "cli/json.h"

namespace bilevel::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string space = "nasbench201";
  std::string architecture;
  std::string out;
  bool json = false;
};

void draw(const Options& o) {
  const std::string extension = fs::path(o.out).extension().string();
  if (extension != ".svg" && extension != ".png" && extension != ".pdf" && extension != ".dot") {
    throw std::invalid_argument(
        fmt::format("--out {}: its name must end in .svg, .png, .pdf or .dot", o.out));
  }
  const nas::SearchSpace space = nas::make_space(o.space);
  const nas::Genotype genotype = nas::parse_genotype(space, o.architecture);
  const std::string graph = nas::genotype_dot(genotype);
  write_file(o.out, extension == ".dot" ? graph : picture_of(graph, extension.substr(1)));
  if (o.json) {
    fmt::print(
        "{}\n",
        Json{{"space", space.name}, {"genotype", nas::genotype_text(genotype)}, {"out", o.out}}.dump());
  } else {
    fmt::print("{}\n", o.out);
  }
}

}  // namespace

void add_draw_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand("draw", "A genotype as a picture (needs graphviz)");
  const auto o = std::make_shared<Options>();
  command
      ->add_option("--space", o->space,
                   "nasbench201, nasbench1shot1-1, nasbench1shot1-2, nasbench1shot1-3 or darts")
      ->capture_default_str();
  command->add_option("--arch", o->architecture, "genotype, as text or JSON")->required();
  command->add_option("--out", o->out, "file to write: .svg, .png, .pdf, or .dot for the graph as text")
      ->required();
  command->add_flag("--json", o->json, "print one JSON object on stdout and nothing else");
  command->footer(
      "Example:\n"
      "  bilevel draw --space nasbench1shot1-1 --out cell.svg --arch \\\n"
      "    'conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(0,1) maxpool3x3(1,3) output(2,4)'");
  command->callback([o] { draw(*o); });
}

}  // namespace bilevel::cli
