#include "reproduce/job.h"

#include <fmt/format.h>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/run/run_context.h"

namespace bilevel::reproduce {

const Fields<ReproduceJobOptions>& ReproduceJobOptions::fields() {
  static const Fields<ReproduceJobOptions> table = [] {
    using O = ReproduceJobOptions;
    Fields<O> f;
    f.add(
         "item", [](O & o) -> auto& { return o.item; }, "item to reproduce; without it, the items are listed")
        .first();
    f.add(
         "scale", [](O & o) -> auto& { return o.settings.scale; },
         "quick takes at most 3 minutes on two cores; medium, for the items that decide something in an "
         "hour, has smaller networks and fewer steps; full has the paper's lengths and sizes")
        .one_of({"quick", "medium", "full"})
        .first();
    f.add(
         "data_dir", [](O & o) -> auto& { return o.settings.data_dir; },
         "folder of the image sets (`bilevel data get`) and of tables of trained cells, or 20 Newsgroups as "
         "a folder or tar archive")
        .is(FieldKind::place)
        .first();
    f.add(
         "benchmark", [](O & o) -> auto& { return o.settings.benchmark; },
         "idarts: table of trained cells (`bilevel query`), if " + named("data_dir") + " does not hold it")
        .is(FieldKind::place)
        .first();
    f.add(
         "epochs", [](O & o) -> auto& { return o.settings.epochs; },
         "idarts: epochs of every search; 0 = as the scale has them")
        .in(at_least(0, bounds::endless))
        .first();
    f.add(
         "seeds", [](O & o) -> auto& { return o.seeds; },
         "idarts, stocbio:cleaning and stocbio:newsgroups: list of random seeds, each for one run of every "
         "setting: 0-2 (three seeds), 0,3,7 or 2-2 (one seed); default: as many as the scale has, from " +
             named("seed") + " on")
        .by_rule()
        .first();
    f.add(
         "rule", [](O & o) -> auto& { return o.settings.rule; },
         "idarts:table1: the paper's algorithm or that of the authors' public code (docs/reproduce.md)")
        .one_of({"paper", "public-code"});
    f.add(
         "seed", [](O & o) -> auto& { return o.settings.seed; },
         "random seed for splits, noise, starts and batches")
        .first();
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

ReproduceJobResult list_items() {
  ReproduceJobResult result{.json = {{"items", Json::array()}}};
  for (const Item& item : items()) {
    result.json["items"].push_back({{"name", item.name}, {"summary", item.summary}});
    result.text += fmt::format("  {:<20}{}\n", item.name, item.summary);
  }
  return result;
}

}  // namespace

ReproduceJobResult run_reproduce(ReproduceJobOptions o, RunContext& context) {
  if (o.item.empty()) return list_items();
  const Item& item = find_item(o.item);
  ReproduceOptions& settings = o.settings;
  settings.seeds = o.seeds.seeds;
  settings.group = context.group();
  settings.validate(item);
  settings.tensors = apply(o.compute, context);
  settings.progress = [&](const std::string& what) { context.progress(item.name + ": " + what); };
  context.open("reproduce", settings.seed, OptionsView(o));
  settings.out = context.folder_name();
  ReproduceJobResult result;
  context.work([&] {
    result.json = {{"item", item.name}, {"scale", settings.scale}, {"seed", settings.seed}};
    result.json.update(item.run(settings));
    if (context.has_folder()) result.json["folder"] = context.folder_name();
    result.text = result_text(result.json);
    context.end(RunStatus::finished, "", result.json);
  });
  return result;
}

}  // namespace bilevel::reproduce
