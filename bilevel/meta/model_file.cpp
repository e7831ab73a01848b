#include "bilevel/meta/model_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/run/checkpoint.h"
#include "bilevel/run/json_value.h"

namespace bilevel::meta {
namespace {

nlohmann::json options_json(const LearnerOptions& o) {
  return {{"name", o.name},
          {"inner_steps", o.inner_steps},
          {"growth", o.growth},
          {"inner_rate", o.inner_rate},
          {"terms", o.terms},
          {"tolerance", o.tolerance},
          {"curvature", o.curvature},
          {"truncate", o.truncate},
          {"ridge", o.ridge},
          {"proximal", o.proximal},
          {"centre_weight", o.centre_weight}};
}

LearnerOptions options_of(const nlohmann::json& j) {
  LearnerOptions o;
  o.name = j.at("name").get<std::string>();
  o.inner_steps = json_as<int64_t>(j.at("inner_steps"));
  o.growth = j.at("growth").get<double>();
  o.inner_rate = j.at("inner_rate").get<double>();
  o.terms = json_as<int64_t>(j.at("terms"));
  o.tolerance = j.at("tolerance").get<double>();
  o.curvature = j.at("curvature").get<std::string>();
  o.truncate = json_as<int64_t>(j.at("truncate"));
  o.ridge = j.at("ridge").get<double>();
  o.proximal = j.at("proximal").get<double>();
  o.centre_weight = j.at("centre_weight").get<double>();
  o.validate();
  return o;
}

std::vector<double> scale_numbers(const nlohmann::json& j, const char* name, int64_t count, const char* of) {
  auto values = j.at(name).get<std::vector<double>>();
  if (std::ssize(values) != count) {
    throw std::runtime_error(
        fmt::format("scale: {} has {} numbers for {} {}", name, values.size(), count, of));
  }
  return values;
}

RowScale rows_of_json(const nlohmann::json& j, int64_t columns) {
  const auto schema = nlohmann::ordered_json::parse(j.at("schema").dump());
  RowScale rows{.schema = schema_of(schema, "its columns"),
                .mean = scale_numbers(j, "mean", columns, "columns"),
                .deviation = scale_numbers(j, "deviation", columns, "columns")};
  const bool is_positive = std::all_of(rows.deviation.begin(), rows.deviation.end(),
                                       [](double deviation) { return deviation > 0; });
  if (!is_positive || rows.schema.features() != columns) {
    throw std::runtime_error(is_positive ? fmt::format("its columns make {} features, its network takes {}",
                                                       rows.schema.features(), columns)
                                         : "scale: a deviation that is not above 0");
  }
  return rows;
}

PixelScale scale_of(const nlohmann::json& j, int64_t channels) {
  PixelScale scale{scale_numbers(j, "mean", channels, "channels"),
                   scale_numbers(j, "deviation", channels, "channels")};
  // Below 0 it turns ink on paper into light on dark.
  if (std::count(scale.deviation.begin(), scale.deviation.end(), 0.0) > 0) {
    throw std::runtime_error("scale: a deviation of 0");
  }
  return scale;
}

Tensor part_of(const std::map<std::string, Tensor>& parts, const Layout::Entry& entry) {
  const auto found = parts.find(entry.name);
  if (found == parts.end()) throw std::runtime_error(fmt::format("it has no {}", entry.name));
  const Tensor& part = found->second;
  if (part.dim() != 1 || part.numel() != entry.size || !part.is_floating_point()) {
    throw std::runtime_error(
        fmt::format("its {} has {} numbers of type {}, its network needs {} floating ones", entry.name,
                    part.numel(), c10::toString(part.scalar_type()), entry.size));
  }
  return part;
}

}  // namespace

Learner LearnedModel::make_learner(int64_t ways, const at::TensorOptions& tensors) const {
  const Learner made(learner, make_network(network, input, ways), tensors);
  if (made.outer_layout().size() != x.numel()) {
    throw std::invalid_argument(
        fmt::format("{} classes: {} has learned a start for {}, and so takes tasks of {} classes only; learn "
                    "with aid or itd for any number",
                    ways, learner.name, outputs, outputs));
  }
  return made;
}

nlohmann::json learned_json(const LearnedModel& model) {
  nlohmann::json m = {{"data", model.data},
                      {"learner", options_json(model.learner)},
                      {"network", {{"name", model.network.name}, {"filters", model.network.filters}}},
                      {"input", model.input},
                      {"outputs", model.outputs},
                      {"regression", model.regression},
                      {"iterations", model.iterations}};
  if (model.raw_penalty > 0) m["raw_penalty"] = model.raw_penalty;
  if (model.scale) m["scale"] = {{"mean", model.scale->mean}, {"deviation", model.scale->deviation}};
  if (model.rows) {
    m["rows"] = {{"mean", model.rows->mean},
                 {"deviation", model.rows->deviation},
                 {"schema", nlohmann::json::parse(schema_json(model.rows->schema).dump())}};
  }
  return m;
}

LearnedModel learned_of(const nlohmann::json& m, const std::map<std::string, Tensor>& given) {
  LearnedModel model;
  model.data = m.at("data").get<std::string>();
  model.learner = options_of(m.at("learner"));
  model.network = {.name = m.at("network").at("name").get<std::string>(),
                   .filters = json_as<int64_t>(m.at("network").at("filters"))};
  model.input = json_as<std::vector<int64_t>>(m.at("input"));
  model.outputs = json_as<int64_t>(m.at("outputs"));
  model.regression = m.at("regression").get<bool>();
  model.iterations = json_as<int64_t>(m.at("iterations"));
  if (m.contains("raw_penalty")) model.raw_penalty = m.at("raw_penalty").get<double>();
  if (m.contains("scale")) model.scale = scale_of(m.at("scale"), model.input.at(0));
  if (m.contains("rows")) model.rows = rows_of_json(m.at("rows"), model.input.at(0));
  // What the file says of itself decides how much is taken out of it: nothing twice, nothing of another
  // size.
  const Learner learner(model.learner, make_network(model.network, model.input, model.outputs), at::kFloat);
  std::vector<Tensor> parts;
  for (const Layout::Entry& entry : learner.outer_layout().entries()) {
    parts.push_back(part_of(given, entry));
    if (parts.back().scalar_type() != parts.front().scalar_type()) {
      throw std::runtime_error("its parts are of several kinds of numbers");
    }
  }
  model.x = at::cat(parts);
  return model;
}

void save_model(const std::string& path, const LearnedModel& model) {
  Checkpoint file;
  const Learner learner = model.make_learner(model.outputs, model.x.options());
  const Layout& layout = learner.outer_layout();
  const std::vector<Tensor> parts = layout.split(model.x);
  for (size_t i = 0; i < parts.size(); ++i) file.tensors[layout.entries()[i].name] = parts[i].contiguous();
  file.metadata["model"] = learned_json(model);
  save_checkpoint(path, file);
}

LearnedModel load_model(const std::string& path) {
  const Checkpoint file = load_checkpoint(path);
  try {
    return learned_of(file.metadata.at("model"), file.tensors);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: is not a model of `bilevel learn`: {}", path, error.what()));
  }
}

}  // namespace bilevel::meta
