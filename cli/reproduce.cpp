// `bilevel reproduce`: the arguments, the list of items, and what an item found.

#include "reproduce/reproduce.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/jobs/seed_list.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/progress.h"
#include "cli/run_options.h"

namespace bilevel::cli {
namespace {

using reproduce::Item;

struct Arguments {
  std::string item, seeds;
  CommonOptions common;
  reproduce::ReproduceOptions options;
};

int list_items(bool json) {
  if (json) {
    Json out = Json::array();
    for (const Item& item : reproduce::items()) {
      out.push_back({{"name", item.name}, {"summary", item.summary}});
    }
    fmt::print("{}\n", Json{{"items", out}}.dump());
  } else {
    for (const Item& item : reproduce::items()) fmt::print("  {:<20}{}\n", item.name, item.summary);
  }
  return success;
}

int run(CLI::App& command, Arguments& a) {
  if (a.item.empty()) return list_items(a.common.json);
  const Item& item = reproduce::find_item(a.item);
  reproduce::ReproduceOptions& o = a.options;
  o.validate(item);
  o.tensors = apply_common_options(a.common);
  RunFlags flags;
  flags.out = o.out;
  RunFolder folder = open_run(command, flags, o.seed);
  o.out = folder.path();
  work_in(folder, [&] {
    Json result = {{"item", item.name}, {"scale", o.scale}, {"seed", o.seed}};
    {
      Progress progress(a.common);
      o.progress = [&](const std::string& what) { progress(item.name + ": " + what); };
      result.update(item.run(o));
    }
    result["folder"] = folder.path();
    fmt::print("{}", a.common.json ? result.dump() + "\n" : reproduce::result_text(result));
    folder.end(RunStatus::finished, "", result);
    if (!a.common.json) fmt::print("the run is in {}\n", folder.path());
  });
  return success;
}

std::vector<uint64_t> seeds_of(const std::string& word) {
  SeedList list;
  try {
    read_word(word, list);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--seeds {}: {}", word, error.what()));
  }
  return list.seeds;
}

}  // namespace

void add_reproduce_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("reproduce", "The papers' tables and figures again, ours beside theirs");
  const auto o = std::make_shared<Arguments>();
  std::string footer = "Items:\n";
  for (const Item& each : reproduce::items()) footer += fmt::format("  {:<20}{}\n", each.name, each.summary);
  command->footer(footer + "Example:\n  bilevel reproduce krmd:toy --scale quick");
  command->add_option("item", o->item, "what to reproduce; without it they are listed");
  command
      ->add_option("--scale", o->options.scale,
                   "quick ends within 3 minutes on two cores, full has the paper's lengths")
      ->check(CLI::IsMember({"quick", "full"}))
      ->capture_default_str();
  command->add_option("--data-dir", o->options.data_dir,
                      "folder of the image sets (`bilevel data get`) and of tables of trained cells, or 20 "
                      "Newsgroups as folder or tar");
  command->add_option(
      "--benchmark", o->options.benchmark,
      "idarts: the table of trained cells (`bilevel query`), where --data-dir does not hold it");
  command->add_option("--epochs", o->options.epochs, "idarts: of every search; 0 = as the scale has them")
      ->capture_default_str();
  command->add_option(
      "--seeds", o->seeds,
      "idarts: a list, one search of every setting each: 0-2 (three seeds), 0,3,7 or 2-2 (one seed); as "
      "many as the scale has by default, from --seed on");
  command->add_option("--seed", o->options.seed, "of splits, noise, starts and batches")
      ->capture_default_str();
  command->add_option("--out", o->options.out,
                      "folder for the result as summary.json, and idarts's curves as ITEM.csv; "
                      "runs/reproduce-DATE-SEED by default");
  o->common.dtype = "float";  // of the items on data; the small ones are in double in any case
  add_common_options(*command, o->common);
  command->callback([command, o, &exit_code] {
    if (!o->seeds.empty()) o->options.seeds = seeds_of(o->seeds);
    exit_code = run(*command, *o);
  });
}

}  // namespace bilevel::cli
