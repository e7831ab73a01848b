// `bilevel draw`: a genotype as a picture, by graphviz.

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/report/picture.h"
#include "bilevel/run/json.h"
#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

namespace fs = std::filesystem;

struct DrawOptions {
  std::string space = "nasbench201";
  std::string genotype, out;
  Given given = {};
  static const Fields<DrawOptions>& fields();
};

const Fields<DrawOptions>& DrawOptions::fields() {
  static const Fields<DrawOptions> table = [] {
    Fields<DrawOptions> f;
    f.add(
         "space", [](auto& o) -> auto& { return o.space; }, "search space of the cell")
        .one_of(nas::space_names())
        .first();
    f.add(
         "arch", [](auto& o) -> auto& { return o.genotype; }, "genotype, as text or JSON")
        .required()
        .first();
    f.add(
         "out", [](auto& o) -> auto& { return o.out; },
         "file to write: .svg, .png, .pdf, or .dot for the graph as text")
        .required()
        .first();
    return f;
  }();
  return table;
}

struct Drawn {
  std::string file;
  Json json = {};
};

Drawn draw(const DrawOptions& o, RunContext& /*context*/) {
  const std::string extension = fs::path(o.out).extension().string();
  if (extension != ".svg" && extension != ".png" && extension != ".pdf" && extension != ".dot") {
    throw OptionError(fmt::format("{}: its name must end in .svg, .png, .pdf or .dot", named("out", o.out)));
  }
  const nas::SearchSpace space = nas::make_space(o.space);
  const nas::Genotype genotype = nas::parse_genotype(space, o.genotype);
  const std::string graph = nas::genotype_dot(genotype);
  write_file(o.out, extension == ".dot" ? graph : picture_of(graph, extension.substr(1)));
  return {o.out, {{"space", space.name}, {"genotype", nas::genotype_text(genotype)}, {"out", o.out}}};
}

}  // namespace

void add_draw_command(CLI::App& app, int& exit_code) {
  add_question<DrawOptions>(
      app, exit_code,
      {"draw", "Draw a genotype as a picture (needs graphviz)",
       "Example:\n"
       "  bilevel draw --space nasbench1shot1-1 --out cell.svg --arch \\\n"
       "    'conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(0,1) maxpool3x3(1,3) output(2,4)'"},
      draw, [](const Drawn& drawn) { fmt::print("{}\n", drawn.file); });
}

}  // namespace bilevel::cli
