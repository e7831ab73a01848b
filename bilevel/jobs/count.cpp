#include "bilevel/jobs/count.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "bilevel/core/random.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/jobs/genotype_lines.h"
#include "bilevel/nas/genotype.h"

namespace bilevel {

const Fields<CountJobOptions>& CountJobOptions::fields() {
  static const Fields<CountJobOptions> table = [] {
    Fields<CountJobOptions> f;
    f.add(
         "space", [](auto& o) -> auto& { return o.space; }, "search space of the cells")
        .first();
    f.add(
         "arch", [](auto& o) -> auto& { return o.genotypes; }, "genotype, as text or JSON; may be repeated")
        .repeated()
        .first();
    f.add(
         "file", [](auto& o) -> auto& { return o.file; },
         "file of genotypes, one per line; # begins a comment")
        .first();
    f.add(
         "random", [](auto& o) -> auto& { return o.random; }, "draw this many cells uniformly")
        .in(at_least(0, bounds::width))
        .by_rule()
        .first();
    f.add(
        "seed", [](auto& o) -> auto& { return o.seed; }, "random seed for the drawn cells");
    f.add(
         "channels", [](auto& o) -> auto& { return o.network.channels; },
         "channels of the first stage; 0 = the space's default")
        .in(at_least(0, bounds::width))
        .first();
    f.add(
         "cells", [](auto& o) -> auto& { return o.network.cells; },
         "number of cells: for each stage in nasbench201, in total in the others; 0 = the space's default")
        .in(at_least(0, bounds::depth))
        .first();
    f.add(
         "image_size", [](auto& o) -> auto& { return o.image_size; },
         "height and width of the images; 32, for ImageNet 224")
        .in(at_least(0, bounds::side))
        .by_rule();
    f.add(
         "input_channels", [](auto& o) -> auto& { return o.network.input_channels; },
         "channels of the images")
        .in(at_least(1, bounds::width));
    f.add(
         "classes", [](auto& o) -> auto& { return o.network.classes; },
         "number of classes; 10, for ImageNet 1000")
        .in(at_least(2, bounds::width))
        .by_rule();
    f.add(
        "imagenet", [](auto& o) -> auto& { return o.network.imagenet_stem; },
        "darts: the network for ImageNet: three halvings first, 48 channels, 14 cells");
    return f;
  }();
  return table;
}

namespace {

CellCount count_cell(const nas::SearchSpace& space, std::string_view text,
                     const nas::NetworkOptions& options) {
  const nas::Network network(space, nas::parse_genotype(space, text), options);
  return {nas::genotype_text(network.genotype()), network.parameters(), network.multiply_adds()};
}

}  // namespace

CountJobResult run_count(CountJobOptions o, RunContext& /*context*/) {
  const nas::SearchSpace space = nas::make_space(o.space);
  if (o.genotypes.empty() && o.file.empty() && o.random == 0) {
    throw OptionError(fmt::format("count: name the cells with {} or {}, or give a number with {}",
                                  named("arch", "TEXT"), named("file", "FILE"), named("random", "N")));
  }
  CountJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
  if (o.network.imagenet_stem && !o.given(o.network.classes)) o.network.classes = 1000;
  if (o.network.imagenet_stem && !o.given(o.image_size)) o.image_size = 224;
  o.network.height = o.network.width = o.image_size;
  o.network.completed(space.kind).validate(space.kind);  // so that no line of a file is blamed for an option
  CountJobResult result;
  for (const std::string& text : o.genotypes) result.cells.push_back(count_cell(space, text, o.network));
  if (!o.file.empty()) {
    for_each_genotype(o.file, fmt::format("a genotype in {}", space.name), [&](std::string_view text) {
      result.cells.push_back(count_cell(space, text, o.network));
    });
  }
  // From a stream of its own: these are not the cells that a random search draws under the seed.
  Random random(named_seed(o.seed, "count"));
  for (int64_t i = 0; i < o.random; ++i) {
    const std::string text = nas::genotype_text(nas::random_genotype(space, random));
    result.cells.push_back(count_cell(space, text, o.network));
  }
  result.json = {{"genotypes", Json::array()}};
  for (const CellCount& c : result.cells) {
    result.json["genotypes"].push_back(
        {{"genotype", c.genotype}, {"parameters", c.parameters}, {"multiply_adds", c.multiply_adds}});
  }
  return result;
}

}  // namespace bilevel
