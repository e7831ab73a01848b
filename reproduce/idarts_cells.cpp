// iDARTS (Zhang et al., ICML 2021), table 2 and figure 3: cells of the DARTS space, how large their networks
// are and how well they learn.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "bilevel/data/splits.h"
#include "bilevel/data/write_file.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/train.h"
#include "bilevel/report/picture.h"
#include "bilevel/report/plot.h"
#include "reproduce/idarts_runs.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

// The second-order cell of Liu, Simonyan and Yang (2019).
constexpr const char* darts_cell =
    "normal: (sep_conv_3x3,0)(sep_conv_3x3,1) (sep_conv_3x3,0)(sep_conv_3x3,1) "
    "(sep_conv_3x3,1)(skip_connect,0) "
    "(skip_connect,0)(dil_conv_3x3,2) reduce: (max_pool_3x3,0)(max_pool_3x3,1) "
    "(skip_connect,2)(max_pool_3x3,1) "
    "(max_pool_3x3,0)(skip_connect,2) (skip_connect,2)(max_pool_3x3,1)";

// A cell that a third party lists under the name iDARTS. Where it comes from could not be verified; its
// counts fit the paper's (3.8 M parameters, 595 M multiply-adds by a wider way of counting).
constexpr const char* third_party_cell =
    "normal: (skip_connect,0)(dil_conv_3x3,1) (sep_conv_3x3,2)(sep_conv_3x3,0) "
    "(sep_conv_3x3,0)(sep_conv_3x3,1) (dil_conv_5x5,3)(sep_conv_3x3,1) reduce: "
    "(avg_pool_3x3,0)(sep_conv_3x3,1) (max_pool_3x3,2)(sep_conv_3x3,1) (max_pool_3x3,0)(dil_conv_3x3,3) "
    "(sep_conv_5x5,2)(max_pool_3x3,1)";

struct Counts {
  int64_t parameters = 0;     // 36 channels, 20 cells, 10 classes, images of 32 x 32
  int64_t multiply_adds = 0;  // 48 channels, 14 cells, 1000 classes, images of 224 x 224
};

Counts count(const nas::SearchSpace& space, const nas::Genotype& genotype) {
  const nas::Network cifar(space, genotype, {});
  nas::NetworkOptions large;
  large.channels = 48;
  large.cells = 14;
  large.height = large.width = 224;
  large.classes = 1000;
  large.imagenet_stem = true;
  return {cifar.parameters(), nas::Network(space, genotype, large).multiply_adds()};
}

double millions(int64_t value) { return static_cast<double>(value) / 1e6; }

// What a network of the cell learned: by the published recipe, or at quick in a minute.
struct Trained {
  int64_t channels = 0, cells = 0, train_images = 0, test_images = 0, epochs = 0;
  double error = 0, seconds = 0;
};

Tensor first_of_each(const Tensor& labels, int64_t classes, int64_t wanted, uint64_t seed) {
  return make_splits(labels, classes, {wanted, 0, 0}, Balance::proportional, seed).train;
}

Trained train(const SearchGround& ground, const nas::Genotype& genotype, const ReproduceOptions& options) {
  ImageData data = *ground.data;
  nas::TrainOptions recipe = nas::default_train_options(nas::SpaceKind::darts);
  recipe.seed = options.seed;
  nas::NetworkOptions size;
  if (!options.full()) {
    const auto keep = [&](Tensor& images, Tensor& labels, int64_t wanted) {
      const Tensor which = first_of_each(labels, data.classes, wanted, options.seed);
      images = images.index_select(0, which);
      labels = labels.index_select(0, which);
    };
    keep(data.train.images, data.train.labels, 2000);
    keep(data.test.images, data.test.labels, 1000);
    size.channels = 8;
    size.cells = 3;
    recipe.epochs = 2;
    recipe.drop_path = recipe.auxiliary = 0;  // the second head wants images of 32 x 32
    recipe.augment.cutout = 0;
    recipe.augment.crop_padding = 1;
  }
  size.input_channels = data.train.images.size(1);
  size.height = data.train.images.size(2);
  size.width = data.train.images.size(3);
  size.classes = data.classes;
  size.auxiliary = recipe.auxiliary > 0;
  const nas::Network network(ground.space, genotype, size);
  const nas::Training training(
      network, DeviceImages(data.train.images, data.train.labels, data.mean, data.std, options.tensors),
      DeviceImages(data.test.images, data.test.labels, data.mean, data.std, options.tensors), recipe);
  nas::TrainState state = training.start();
  nas::TrainHooks hooks;
  hooks.progress = [&](const nas::TrainProgress& p) {
    options.progress(fmt::format("training: epoch {} of {}, step {} of {}, loss {:.3f}", p.epoch, p.epochs,
                                 p.step, p.steps, p.loss));
  };
  training.run(state, hooks);
  Trained result{network.options().channels,
                 network.options().cells,
                 data.train.images.size(0),
                 data.test.images.size(0),
                 recipe.epochs,
                 100 - state.history.back().test_accuracy,
                 0};
  for (const nas::TrainEpoch& epoch : state.history) result.seconds += epoch.seconds;
  return result;
}

Json our_row(const std::string& method, const Counts& counts) {
  return {{"method", method},
          {"source", "ours"},
          {"C10 error", "not run"},
          {"C100 error", "not run"},
          {"ImageNet error", "not run"},
          {"params M", fmt::format("{:.2f}", millions(counts.parameters))},
          {"mult-adds M", fmt::format("{:.0f}", millions(counts.multiply_adds))},
          {"found by", "-"}};
}

struct Published {
  const char *method, *cifar10, *cifar100, *imagenet, *parameters, *multiply_adds, *found_by;
};
constexpr Published published[] = {
    {"NASNet-A", "2.65", "17.81", "26.0 / 8.4", "3.3", "564", "RL"},
    {"PNAS", "3.41 ± 0.09", "17.63", "25.8 / 8.1", "3.2", "588", "SMBO"},
    {"AmoebaNet-A", "3.34 ± 0.06", "-", "25.5 / 8.0", "3.2", "555", "EA"},
    {"ENAS", "2.89", "18.91", "-", "4.6", "-", "RL"},
    {"EN2AS", "2.61 ± 0.06", "16.45", "26.7 / 8.9", "3.1", "506", "EA"},
    {"RandomNAS", "2.85 ± 0.08", "17.63", "27.1", "4.3", "613", "random"},
    {"NSAS", "2.59 ± 0.06", "17.56", "25.5 / 8.2", "3.1", "506", "random"},
    {"PARSEC", "2.86 ± 0.06", "-", "26.3", "3.6", "509", "gradient"},
    {"SNAS", "2.85 ± 0.02", "20.09", "27.3 / 9.2", "2.8", "474", "gradient"},
    {"SETN", "2.69", "17.25", "25.7 / 8.0", "4.6", "610", "gradient"},
    {"MdeNAS", "2.55", "17.61", "25.5 / 7.9", "3.6", "506", "gradient"},
    {"GDAS", "2.93", "18.38", "26.0 / 8.5", "3.4", "545", "gradient"},
    {"XNAS", "2.57 ± 0.09", "16.34", "24.7 / 7.5", "3.7", "600", "gradient"},
    {"PDARTS", "2.50", "16.63", "24.4 / 7.4", "3.4", "557", "gradient"},
    {"PC-DARTS", "2.57 ± 0.07", "17.11", "25.1 / 7.8", "3.6", "586", "gradient"},
    {"DrNAS", "2.54 ± 0.03", "16.30", "24.2 / 7.3", "4.0", "644", "gradient"},
    {"DARTS", "2.76 ± 0.09", "17.54", "26.9 / 8.7", "3.4", "574", "gradient"},
    {"iDARTS", "2.37 ± 0.03", "16.02", "24.3 / 7.3", "3.8", "595", "gradient"},
};

Json quoted_row(const Published& row) {
  return {{"method", row.method},
          {"source", "quoted"},
          {"C10 error", row.cifar10},
          {"C100 error", row.cifar100},
          {"ImageNet error", row.imagenet},
          {"params M", row.parameters},
          {"mult-adds M", row.multiply_adds},
          {"found by", row.found_by}};
}

}  // namespace

Json idarts_table2(const ReproduceOptions& options) {
  ReproduceOptions searched = options;
  if (searched.seeds.empty() && !options.full()) searched.seeds = {options.seed};
  SearchGround ground = search_ground("darts", searched);
  const std::vector<SearchRuns> all = {
      run_searches(ground, search_setting("iDARTS T=4 K=2", ground, "idarts", searched), searched)};

  Json rows = Json::array(), cells = Json::array();
  for (const Published& row : published) rows.push_back(quoted_row(row));
  const nas::Genotype darts = nas::parse_genotype(ground.space, darts_cell);
  const Counts darts_counts = count(ground.space, darts);
  rows.push_back(our_row("DARTS, its published cell", darts_counts));
  int64_t largest = 0;
  for (size_t i = 0; i < all[0].runs.size(); ++i) {
    const nas::Genotype& genotype = all[0].runs[i].genotype;
    const Counts counts = count(ground.space, genotype);
    largest = std::max(largest, counts.multiply_adds);
    const std::string name = fmt::format("iDARTS, seed {}", all[0].seeds[i]);
    rows.push_back(our_row(name, counts));
    cells.push_back({{"method", name},
                     {"parameters", counts.parameters},
                     {"multiply-adds (ImageNet)", counts.multiply_adds},
                     {"skips of normal", nas::skip_count(genotype)},
                     {"cell", nas::genotype_text(genotype)}});
  }
  cells.push_back({{"method", "DARTS, published"},
                   {"parameters", darts_counts.parameters},
                   {"multiply-adds (ImageNet)", darts_counts.multiply_adds},
                   {"skips of normal", nas::skip_count(darts)},
                   {"cell", nas::genotype_text(darts)}});

  const double parameters = millions(darts_counts.parameters), work = millions(darts_counts.multiply_adds);
  Json claims = Json::array(
      {claim("the published DARTS cell has 3.4 M parameters, within 0.1", std::abs(parameters - 3.4) <= 0.1,
             fmt::format("{:.3f} M without the second head", parameters)),
       claim("and 574 M multiply-adds on ImageNet", std::abs(work - 574) <= 1,
             fmt::format("{:.1f} M of convolutions and the linear layer; the papers count more than those",
                         work)),
       claim("the cells found stay below 600 M multiply-adds on ImageNet", millions(largest) < 600,
             fmt::format("the largest has {:.1f} M", millions(largest)))});
  Json tables =
      Json::array({table("Table 2: the DARTS space (errors in percent)", Json()), table("The cells", cells)});
  if (ground.data) {
    // The one that its own supernet thinks best of.
    const auto best = std::min_element(all[0].runs.begin(), all[0].runs.end(),
                                       [](const nas::SearchSummary& a, const nas::SearchSummary& b) {
                                         return a.history.back().valid_loss < b.history.back().valid_loss;
                                       });
    const auto position = static_cast<size_t>(best - all[0].runs.begin());
    const auto seed = all[0].seeds[position];
    const Trained trained = train(ground, best->genotype, options);
    if (options.full())
      rows[std::size(published) + 1 + position]["C10 error"] = fmt::format("{:.2f}", trained.error);
    tables.push_back(
        table("Trained from scratch", Json::array({{{"cell", fmt::format("iDARTS, seed {}", seed)},
                                                    {"channels", trained.channels},
                                                    {"cells", trained.cells},
                                                    {"images", trained.train_images},
                                                    {"epochs", trained.epochs},
                                                    {"test images", trained.test_images},
                                                    {"test error", trained.error},
                                                    {"seconds", trained.seconds}}})));
  }
  tables[0]["rows"] = rows;
  save_runs(all, "idarts-table2.csv", searched);
  Json notes = search_notes(ground, all, searched);
  notes.push_back(
      "Parameters are of the network for CIFAR-10 (36 channels, 20 cells), multiply-adds of that for "
      "ImageNet (48 channels, 14 cells, 224 x 224), both without the second head.");
  notes.push_back(
      !ground.data ? "No images, so that no network of our cells is trained: `bilevel data get cifar10`."
      : options.full()
          ? "One of our cells is trained on CIFAR-10, by the published recipe; CIFAR-100 and ImageNet are "
            "not run here: `bilevel train` does it."
          : "The error columns of our cells are not run: two epochs of a small network on small images, "
            "below, are no such error. `bilevel train` has the published recipe, 600 epochs.");
  return {{"tables", tables}, {"claims", claims}, {"notes", notes}, {"runs", runs_json(all)}};
}

Json idarts_figure3(const ReproduceOptions& options) {
  const nas::SearchSpace space = nas::make_space("darts");
  const nas::Genotype cell = nas::parse_genotype(space, third_party_cell);
  const Counts counts = count(space, cell);
  Json notes = Json::array(
      {"The figure is a drawing without text, so that its cells cannot be read from the paper. The cell here "
       "goes by the name iDARTS in a third party's list; where it comes from could not be verified."});
  if (!options.out.empty() && can_draw()) {
    const std::filesystem::path file = std::filesystem::path(options.out) / "idarts-figure-3.svg";
    write_file(file, with_dark_colors(picture_of(nas::genotype_dot(cell), "svg")));
    notes.push_back(fmt::format("drawn: {}", file.string()));
  }
  const double parameters = millions(counts.parameters), work = millions(counts.multiply_adds);
  return {
      {"tables", Json::array({table("Figure 3: the cell",
                                    Json::array({{{"parameters", counts.parameters},
                                                  {"multiply-adds (ImageNet)", counts.multiply_adds},
                                                  {"cell", nas::genotype_text(cell)}}}))})},
      {"claims", Json::array({claim("the cell has the paper's 3.8 M parameters, within 0.1",
                                    std::abs(parameters - 3.8) <= 0.1, fmt::format("{:.3f} M", parameters)),
                              claim("and at most the paper's 595 M multiply-adds", work <= 595,
                                    fmt::format("{:.1f} M of convolutions and the linear layer", work))})},
      {"notes", notes}};
}

}  // namespace bilevel::reproduce
