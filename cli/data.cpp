// `bilevel data`: the image sets that jobs know by name, where they are; `get`, which fetches them; and
// `show`, which reads images of any form and says what they are.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "bilevel/data/fetch.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/jobs/show_images.h"
#include "bilevel/run/json.h"
#include "cli/commands.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

struct ListSetsOptions {
  std::string folder = "data";
  Given given = {};
  static const Fields<ListSetsOptions>& fields() {
    static const Fields<ListSetsOptions> table = [] {
      Fields<ListSetsOptions> f;
      f.add(
           "data_dir", [](auto& o) -> auto& { return o.folder; }, "folder in which to look for fetched sets")
          .from_environment("BILEVEL_DATA")
          .first();
      return f;
    }();
    return table;
  }
};

struct GetSetsOptions {
  std::vector<std::string> names;
  std::string folder = "data";
  Given given = {};
  static const Fields<GetSetsOptions>& fields() {
    static const Fields<GetSetsOptions> table = [] {
      Fields<GetSetsOptions> f;
      f.add(
           "names", [](auto& o) -> auto& { return o.names; },
           "mnist, fashion-mnist or cifar10; for cifar100, instructions are printed")
          .required()
          .first();
      f.add(
           "to", [](auto& o) -> auto& { return o.folder; }, "folder in which each set gets its own folder")
          .from_environment("BILEVEL_DATA")
          .first();
      return f;
    }();
    return table;
  }
};

// As text, a line each.
struct Sets {
  std::vector<std::string> lines;
  Json json = {};
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
  return "by hand: see data get";
}

// Empty where the set is not here.
std::string place_of(const ImageSet& set, const std::string& folder) {
  try {
    return find_image_set(set.name, folder);
  } catch (const std::runtime_error&) {
    return "";
  }
}

Sets list_sets(const ListSetsOptions& o, RunContext& /*context*/) {
  Sets sets;
  Json rows = Json::array();
  sets.lines.push_back(
      fmt::format("{:<16}{:>9}{:>10}  {:<28}{}", "set", "classes", "MB", "from", "found in"));
  for (const std::string& name : image_set_names()) {
    const ImageSet& set = image_set(name);
    const std::string place = place_of(set, o.folder);
    rows.push_back({{"name", name},
                    {"classes", set.classes},
                    {"bytes", size_of(set)},
                    {"from", source_of(set)},
                    {"folder", place.empty() ? Json(nullptr) : Json(place)}});
    sets.lines.push_back(fmt::format("{:<16}{:>9}{:>10.1f}  {:<28}{}", name, set.classes.size(),
                                     static_cast<double>(size_of(set)) / 1e6, source_of(set),
                                     place.empty() ? "-" : place));
  }
  sets.lines.emplace_back("\nbilevel data get NAME --to DIR fetches one.");
  sets.json = {{"sets", rows}};
  return sets;
}

Sets get_sets(const GetSetsOptions& o, RunContext& context) {
  for (const std::string& name : o.names) (void)image_set(name);  // an unknown one before any download
  Sets sets;
  Json rows = Json::array();
  for (const std::string& name : o.names) {
    const FetchSummary summary = fetch_image_set(
        name, o.folder, [&](const std::string& what) { context.progress(name + ": " + what); });
    rows.push_back({{"name", name},
                    {"folder", summary.folder},
                    {"present", summary.present},
                    {"fetched", summary.fetched},
                    {"bytes", summary.bytes}});
    const bool by_hand = image_set(name).manager == PackageManager::none;
    sets.lines.push_back(fmt::format("{}: {} files fetched ({:.1f} MB), {} already there, all {} in {}", name,
                                     summary.fetched, static_cast<double>(summary.bytes) / 1e6,
                                     summary.present, by_hand ? "of the right size" : "verified",
                                     summary.folder));
  }
  sets.json = {{"sets", rows}};
  return sets;
}

void print_sets(const Sets& sets) {
  for (const std::string& line : sets.lines) fmt::print("{}\n", line);
}

void print_images(const ShowImagesResult& result) {
  const ImageData& data = result.data;
  fmt::print("{}: {} training and {} test images, {} x {} pixels, {}, {} classes\n", result.name,
             data.train.labels.numel(), data.test.labels.numel(), data.train.images.size(3),
             data.train.images.size(2), data.train.images.size(1) == 1 ? "grey" : "colour", data.classes);
  fmt::print("mean {:.2f}, std {:.2f} of 255, channel by channel\n\n", fmt::join(data.mean, " "),
             fmt::join(data.std, " "));
  fmt::print("{:<24}{:>9}{:>9}\n", "class", "train", "test");
  for (size_t k = 0; k < result.train.size(); ++k) {
    fmt::print("{:<24}{:>9}{:>9}\n", data.class_names[k], result.train[k], result.test[k]);
  }
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_code) {
  CLI::App* command = add_question<ListSetsOptions>(
      app, exit_code,
      {"data", "List the image sets that jobs know by name, fetch them, or show images",
       "Examples:\n"
       "  bilevel data\n"
       "  bilevel data --data-dir data --json"},
      list_sets, print_sets);
  add_question<GetSetsOptions>(*command, exit_code,
                               {"get",
                                "Fetch sets through the package managers, and verify them",
                                "Files that are already there are verified and kept; an interrupted fetch "
                                "continues where it stopped.\n"
                                "Examples:\n"
                                "  bilevel data get fashion-mnist --to data\n"
                                "  bilevel data get mnist cifar10 --to data --json",
                                {"names"}},
                               get_sets, print_sets);
  add_question<ShowImagesOptions>(*command, exit_code,
                                  {"show", "Read images and print their sizes, classes, mean and std",
                                   "Examples:\n"
                                   "  bilevel data show --data cifar10 --data-dir data\n"
                                   "  bilevel data show --data pictures --image-size 32 --json"},
                                  run_show_images, print_images);
}

}  // namespace bilevel::cli
