#include "reproduce/job.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/run/run_context.h"
#include "reproduce/finished_runs.h"

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

// An item is asked between two steps of its runs, where it reports its progress; it is no error, so that no
// item takes it for one.
struct Interrupted {};

// All ranks keep theirs where they know the folder; by default rank 0 alone does.
std::shared_ptr<FinishedRuns> finished_runs(RunContext& context) {
  const RunContext::Place& place = context.place();
  std::string folder = context.has_folder() ? context.folder_name() : place.resume;
  if (folder.empty() && place.keep) folder = place.out;
  if (context.group()) (void)context.interrupted();  // rank 0 has made the folder when all have come here
  if (folder.empty()) return nullptr;
  return std::make_shared<FinishedRuns>(folder, context.resumes(),
                                        [&context](const std::string& text) { context.warning(text); });
}

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
  settings.progress = [&](const std::string& what) {
    if (context.interrupted_here()) throw Interrupted{};
    context.progress(item.name + ": " + what);
  };
  context.open("reproduce", settings.seed, OptionsView(o));
  settings.out = context.folder_name();
  settings.finished = finished_runs(context);
  ReproduceJobResult result;
  context.work([&] {
    result.json = {{"item", item.name}, {"scale", settings.scale}, {"seed", settings.seed}};
    try {
      result.json.update(item.run(settings));
    } catch (const Interrupted&) {
      if (context.group()) context.group()->fail("interrupted", 130);
      result.end.status = RunStatus::interrupted;
      context.end(result.end.status, "", nullptr);
      return;
    }
    if (context.has_folder()) result.json["folder"] = context.folder_name();
    result.text = result_text(result.json);
    context.end(RunStatus::finished, "", result.json);
  });
  return result;
}

}  // namespace bilevel::reproduce
