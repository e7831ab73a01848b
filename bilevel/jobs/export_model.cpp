#include "bilevel/jobs/export_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/data/npy.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/problems/cnn_cleaning.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel {
namespace {

constexpr const char* second_head = "second head/";  // of DARTS's training, as nas/network_darts.cpp names it

// What every description has, after the arrays and the function are known.
void describe(ExportedModel& model, const std::string& holds, int64_t width,
              const std::string& output_holds) {
  model.inputs.at(0).holds = holds;
  model.output.width = width;
  model.output.holds = output_holds;
  Json& d = model.description;
  d["inputs"] = Json::array();
  for (const ExportedInput& input : model.inputs) {
    Json shape = Json::array({"n"});
    for (const int64_t length : input.shape) shape.push_back(length);
    d["inputs"].push_back({{"name", input.name},
                           {"type", exported_type(input.type)},
                           {"shape", shape},
                           {"holds", input.holds}});
  }
  d["output"] = {{"name", model.output.name}, {"width", width}, {"holds", output_holds}};
  d["arrays"] = Json::array();
  for (const NamedArray& array : model.arrays) d["arrays"].push_back(array.name);
}

std::string scores_hold(const SavedModel& model) {
  return model.class_names.empty() ? "the number that is predicted"
                                   : "a score for every class; their softmax are its probabilities";
}

void add_layout(const Layout& layout, const Tensor& flat, const std::string& before,
                std::vector<NamedArray>& arrays) {
  const std::vector<Tensor> parts = layout.split(flat);
  for (size_t i = 0; i < parts.size(); ++i) {
    arrays.push_back({before + layout.entries()[i].name, parts[i].contiguous()});
  }
}

const Tensor& array_named(const ExportedModel& file, const std::string& name, const std::string& path) {
  for (const NamedArray& array : file.arrays) {
    if (array.name == name) return array.value;
  }
  throw std::runtime_error(
      fmt::format("{}: expected an array {}, found none; export the run again", path, name));
}

Tensor flat_of(const Layout& layout, const std::string& before, const ExportedModel& file,
               const std::string& path) {
  std::vector<Tensor> parts = {at::empty({0}, at::kFloat)};
  for (const Layout::Entry& entry : layout.entries()) {
    const Tensor part = array_named(file, before + entry.name, path);
    if (part.sizes() != at::IntArrayRef(entry.shape)) {
      throw std::runtime_error(
          fmt::format("{}: array {}: expected {} numbers, found {}; export the run again", path,
                      before + entry.name, fmt::join(entry.shape, " x "), fmt::join(part.sizes(), " x ")));
    }
    parts.push_back(part.reshape({-1}));
    parts.front() = parts.front().to(part.scalar_type());
  }
  return at::cat(parts);
}

// (inputs - mean) / std, by channel.
void add_scale(const std::vector<double>& mean, const std::vector<double>& std,
               std::vector<NamedArray>& arrays) {
  const auto by_channel = [](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).view({1, -1, 1, 1}).to(at::kFloat);
  };
  arrays.push_back({"input.mean", by_channel(mean)});
  arrays.push_back({"input.std", by_channel(std)});
}

std::string pictures_hold(int64_t channels, int64_t height, int64_t width) {
  return fmt::format(
      "{} pictures of {} x {} pixels, as bytes from 0 to 255; input.mean and input.std are applied inside",
      channels == 1 ? "grey" : fmt::format("{}-channel", channels), height, width);
}

// ---- train ----

nas::Network network_of(const SavedModel& model, bool auxiliary) {
  const nas::SearchSpace space = nas::make_space(model.space);
  nas::NetworkOptions options = model.network;
  options.auxiliary = auxiliary;
  return {space, nas::parse_genotype(space, model.genotype), options};
}

// What is left of a plan's entries without the second head, which training alone uses: in the order of the
// network without it, whose names these are.
Tensor without_second_head(const Layout& whole, const Tensor& flat, const Layout& part) {
  const std::vector<Tensor> all = whole.split(flat);
  std::vector<Tensor> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!whole.entries()[i].name.starts_with(second_head)) kept.push_back(all[i]);
  }
  return part.flatten(kept);
}

ExportedModel exported_network(const std::string& run, SavedModel saved) {
  const nas::Network trained = network_of(saved, saved.network.auxiliary);
  const TrainedWeights numbers = trained_weights(run, trained);
  const auto network = std::make_shared<nas::Network>(network_of(saved, false));
  const nas::NetworkPlan &all = trained.plan(), &plan = network->plan();
  saved.network.auxiliary = false;

  ExportedModel model;
  add_scale(saved.mean, saved.std, model.arrays);
  const Tensor w = numbers.w.to(at::kFloat), statistics = numbers.statistics.to(at::kFloat);
  add_layout(plan.weights, without_second_head(all.weights, w, plan.weights), "", model.arrays);
  add_layout(plan.statistics, without_second_head(all.statistics, statistics, plan.statistics), "",
             model.arrays);
  const nas::NetworkOptions& o = network->options();
  model.inputs = {{"images", at::kFloat, {o.input_channels, o.height, o.width}}};
  model.output.name = "scores";
  const auto first_statistic = static_cast<std::ptrdiff_t>(2 + plan.weights.entries().size());
  model.function = [network, first_statistic](const std::vector<Tensor>& arrays,
                                              const std::vector<Tensor>& inputs) {
    return network->tested({arrays.begin() + 2, arrays.begin() + first_statistic},
                           {arrays.begin() + first_statistic, arrays.end()},
                           (inputs[0] - arrays[0]) / arrays[1]);
  };
  model.description = {{"bilevel", BILEVEL_VERSION}, {"model", saved_model_json(saved)}};
  describe(model, pictures_hold(o.input_channels, o.height, o.width), o.classes, scores_hold(saved));
  return model;
}

// ---- clean, tune, interact ----

std::string rows_hold(const TableSchema& schema) {
  if (schema.is_bytes) return "bytes from 0 to 255 as they are; they are divided by input.std inside";
  if (schema.form != TableSchema::Form::table) return "the numbers as the training file had them";
  return "the columns of a table, as \"features\" names them: numbers as they are, and 1 or 0 for each "
         "category of a column of text; a missing number is the column's mean in \"schema\"";
}

// Rows as they are in the file, with what the reader does to bytes.
struct RowsInput {
  bool is_bytes = false;

  RowsInput(const TableSchema& schema, at::ScalarType type, ExportedModel& model)
      : is_bytes(schema.is_bytes) {
    model.inputs = {{"rows", type, {schema.features()}}};
    if (is_bytes) model.arrays.push_back({"input.std", at::full({1}, 255.0, type)});
  }
  size_t arrays() const { return is_bytes ? 1 : 0; }
  Tensor prepared(const std::vector<Tensor>& arrays, const Tensor& rows) const {
    return is_bytes ? rows / arrays[0] : rows;
  }
};

// The intercept, which is the last of the features, by itself.
void add_matrix(const Tensor& weights, int64_t dimension, bool has_intercept,
                std::vector<NamedArray>& arrays) {
  if (!has_intercept) {
    arrays.push_back({"weights", weights.contiguous()});
    return;
  }
  const int64_t features = weights.size(dimension) - 1;
  arrays.push_back({"weights", weights.narrow(dimension, 0, features).contiguous()});
  arrays.push_back({"intercept", weights.select(dimension, features).contiguous()});
}

ExportedModel exported_rows(const Tensor& weights, const SavedModel& saved) {
  ExportedModel model;
  const bool has_intercept = saved.has_intercept;
  const RowsInput input(saved.schema, at::kDouble, model);
  const size_t first = input.arrays();
  int64_t width = 0;
  if (saved.kind == SavedModel::Kind::tasks && !saved.classes_are_tasks) {
    width = weights.size(1);
    add_matrix(weights, 2, has_intercept, model.arrays);
    model.inputs.push_back({"task", at::kLong, {}, "the position of the row's task among \"task_names\""});
    model.function = [=](const std::vector<Tensor>& arrays, const std::vector<Tensor>& inputs) {
      const Tensor rows = input.prepared(arrays, inputs[0]).unsqueeze(2);
      const Tensor scores = arrays[first].index_select(0, inputs[1]).bmm(rows).squeeze(2);
      return has_intercept ? scores + arrays[first + 1].index_select(0, inputs[1]) : scores;
    };
  } else {
    const bool by_task = saved.kind == SavedModel::Kind::tasks;  // a row for each class, not a column
    width = weights.size(by_task ? 0 : 1);
    add_matrix(by_task ? weights.t() : weights, 0, has_intercept, model.arrays);
    model.function = [=](const std::vector<Tensor>& arrays, const std::vector<Tensor>& inputs) {
      const Tensor scores = input.prepared(arrays, inputs[0]).mm(arrays[first]);
      return has_intercept ? scores + arrays[first + 1] : scores;
    };
  }
  model.output.name = saved.class_names.empty() ? "values" : "scores";
  model.description = {{"bilevel", BILEVEL_VERSION}, {"model", saved_model_json(saved)}};
  if (saved.schema.form == TableSchema::Form::table) {
    model.description["features"] = saved.schema.feature_names();
  }
  describe(model, rows_hold(saved.schema), width, scores_hold(saved));
  return model;
}

Layout cnn_layout(const SavedModel& saved) {
  const auto classes = static_cast<int64_t>(saved.class_names.size());
  const LabelledExamples none{at::zeros({classes, saved.schema.features()}), at::arange(classes, at::kLong)};
  return *CnnCleaning({none, none, classes, {}, {}}, saved.schema.image, {}, at::kFloat).inner_layout();
}

ExportedModel exported_cnn(const Tensor& weights, const SavedModel& saved) {
  ExportedModel model;
  const RowsInput input(saved.schema, at::kFloat, model);
  add_layout(cnn_layout(saved), weights.to(at::kFloat), "", model.arrays);
  const std::vector<int64_t> image = {-1, 1, saved.schema.image.at(0), saved.schema.image.at(1)};
  model.function = [=](const std::vector<Tensor>& arrays, const std::vector<Tensor>& inputs) {
    const auto first = static_cast<std::ptrdiff_t>(input.arrays());
    return CnnCleaning::network(input.prepared(arrays, inputs[0]).reshape(image),
                                {arrays.begin() + first, arrays.end()});
  };
  model.output.name = "scores";
  model.description = {{"bilevel", BILEVEL_VERSION}, {"model", saved_model_json(saved)}};
  describe(model, rows_hold(saved.schema), static_cast<int64_t>(saved.class_names.size()),
           scores_hold(saved));
  return model;
}

}  // namespace

TrainedWeights trained_weights(const std::string& run, const nas::Network& network) {
  const Checkpoint checkpoint = load_checkpoint(run + "/checkpoint");
  const auto take = [&](const char* name, int64_t size) {
    const auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end() || found->second.numel() != size) {
      throw std::runtime_error(
          fmt::format("{}/checkpoint: expected {} numbers as {}, found {}; the files are from different "
                      "runs: train again",
                      run, size, name, found == checkpoint.tensors.end() ? 0 : found->second.numel()));
    }
    return found->second;
  };
  return {take("training/w", network.plan().parameters()),
          take("training/statistics", network.plan().statistics.size())};
}

ExportedModel exported_model(const std::string& run, const SavedModel& saved) {
  if (saved.kind == SavedModel::Kind::network) return exported_network(run, saved);
  const Tensor weights = read_npy(run + "/model.npy").to(at::kDouble);
  return saved.kind == SavedModel::Kind::cnn ? exported_cnn(weights, saved) : exported_rows(weights, saved);
}

ExportedModel exported_learned(const meta::LearnedModel& learned) {
  const auto learner =
      std::make_shared<meta::Learner>(learned.make_learner(learned.outputs, learned.x.options()));
  ExportedModel model;
  if (learned.scale) add_scale(learned.scale->mean, learned.scale->deviation, model.arrays);
  if (learned.rows) {
    model.arrays.push_back({"input.mean", at::tensor(learned.rows->mean, at::kDouble).to(at::kFloat)});
    model.arrays.push_back({"input.std", at::tensor(learned.rows->deviation, at::kDouble).to(at::kFloat)});
  }
  const auto scaled = static_cast<std::ptrdiff_t>(model.arrays.size());
  const std::vector<Tensor> parts = learner->outer_layout().split(learned.x.to(at::kFloat));
  std::ptrdiff_t embedding_end = scaled, start_end = scaled;
  bool has_start = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = learner->outer_layout().entries()[i].name;
    if (name == "embedding") {
      add_layout(learner->embedding().layout(), parts[i], "embedding/", model.arrays);
      embedding_end = start_end = static_cast<std::ptrdiff_t>(model.arrays.size());
    } else if (name == "start" || name == "centre") {
      has_start = true;
      add_layout(learner->task_network().layout(), parts[i], name + "/", model.arrays);
      start_end = static_cast<std::ptrdiff_t>(model.arrays.size());
    } else {
      model.arrays.push_back({name, parts[i].contiguous()});
    }
  }
  model.inputs = {{learned.scale ? "images" : "inputs", at::kFloat, learned.input}};
  model.output.name = has_start ? "outputs" : "features";
  model.function = [=](const std::vector<Tensor>& arrays, const std::vector<Tensor>& inputs) {
    Tensor data = scaled > 0 ? (inputs[0] - arrays[0]) / arrays[1] : inputs[0];
    const auto from = arrays.begin();
    if (learner->embedding().layers() > 0) {
      data = learner->embedding().of_one_task(data, {from + scaled, from + embedding_end});
    }
    if (has_start) data = learner->task_network().of_one_task(data, {from + embedding_end, from + start_end});
    return data.dim() > 2 ? data.flatten(1) : data;
  };
  model.description = {{"bilevel", BILEVEL_VERSION}, {"learned", Json(meta::learned_json(learned))}};
  const std::string holds =
      learned.scale  ? pictures_hold(learned.input[0], learned.input[1], learned.input[2])
      : learned.rows ? "rows in the units of the table; input.mean and input.std are applied inside"
                     : "numbers as the tasks have them";
  describe(model, holds + "; batch norm takes its statistics from the examples that are given at once",
           has_start ? learned.outputs : learner->embedding().output_size(),
           has_start ? "the outputs before a task is learned; a task trains the network from here"
                     : "features; a task trains a linear layer on them");
  return model;
}

bool is_exported_file(const std::string& run) { return std::filesystem::is_regular_file(run); }

Tensor weights_of(const ExportedModel& file, const SavedModel& saved, const std::string& path) {
  if (saved.kind == SavedModel::Kind::cnn) return flat_of(cnn_layout(saved), "", file, path);
  Tensor weights = array_named(file, "weights", path);
  const bool by_row = saved.kind == SavedModel::Kind::tasks && !saved.classes_are_tasks;
  if (saved.has_intercept) {
    const int64_t dimension = by_row ? 2 : 0;
    const Tensor intercept = array_named(file, "intercept", path);
    if (weights.dim() != (by_row ? 3 : 2) || intercept.dim() != weights.dim() - 1) {
      throw std::runtime_error(
          fmt::format("{}: arrays weights and intercept: {} and {} dimensions do not go together; export the "
                      "run again",
                      path, weights.dim(), intercept.dim()));
    }
    weights = at::cat({weights, intercept.unsqueeze(dimension)}, dimension);
  }
  return saved.kind == SavedModel::Kind::tasks && saved.classes_are_tasks ? weights.t() : weights;
}

TrainedWeights trained_weights_of(const ExportedModel& file, const nas::Network& network,
                                  const std::string& path) {
  return {flat_of(network.plan().weights, "", file, path),
          flat_of(network.plan().statistics, "", file, path)};
}

meta::LearnedModel learned_of(const ExportedModel& file, const std::string& path) {
  try {
    const nlohmann::json json = nlohmann::json::parse(file.description.at("learned").dump());
    // Its parts are cut finer in the file, each into the arrays of its layers, in their order.
    std::map<std::string, std::vector<Tensor>> cut;
    for (const NamedArray& array : file.arrays) {
      cut[array.name.substr(0, array.name.find('/'))].push_back(array.value.reshape({-1}));
    }
    std::map<std::string, Tensor> parts;
    for (const auto& [name, pieces] : cut) parts[name] = at::cat(pieces);
    return meta::learned_of(json, parts);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: is not a model of `bilevel export`: {}", path, error.what()));
  }
}

}  // namespace bilevel
