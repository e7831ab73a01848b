#include "bilevel/meta/model_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/run/checkpoint.h"

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
  o.inner_steps = j.at("inner_steps").get<int64_t>();
  o.growth = j.at("growth").get<double>();
  o.inner_rate = j.at("inner_rate").get<double>();
  o.terms = j.at("terms").get<int64_t>();
  o.tolerance = j.at("tolerance").get<double>();
  o.curvature = j.at("curvature").get<std::string>();
  o.truncate = j.at("truncate").get<int64_t>();
  o.ridge = j.at("ridge").get<double>();
  o.proximal = j.at("proximal").get<double>();
  o.centre_weight = j.at("centre_weight").get<double>();
  o.validate();
  return o;
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

void save_model(const std::string& path, const LearnedModel& model) {
  Checkpoint file;
  const Learner learner = model.make_learner(model.outputs, model.x.options());
  const Layout& layout = learner.outer_layout();
  const std::vector<Tensor> parts = layout.split(model.x);
  std::vector<std::string> names;
  for (size_t i = 0; i < parts.size(); ++i) {
    names.push_back(layout.entries()[i].name);
    file.tensors[names.back()] = parts[i].contiguous();
  }
  nlohmann::json& m = file.metadata["model"];
  m = {{"data", model.data},
       {"learner", options_json(model.learner)},
       {"network", {{"name", model.network.name}, {"filters", model.network.filters}}},
       {"input", model.input},
       {"outputs", model.outputs},
       {"regression", model.regression},
       {"iterations", model.iterations},
       {"parts", names}};
  if (model.scale) m["scale"] = {{"mean", model.scale->mean}, {"deviation", model.scale->deviation}};
  save_checkpoint(path, file);
}

LearnedModel load_model(const std::string& path) {
  const Checkpoint file = load_checkpoint(path);
  try {
    LearnedModel model;
    const nlohmann::json& m = file.metadata.at("model");
    model.data = m.at("data").get<std::string>();
    model.learner = options_of(m.at("learner"));
    model.network = {.name = m.at("network").at("name").get<std::string>(),
                     .filters = m.at("network").at("filters").get<int64_t>()};
    model.input = m.at("input").get<std::vector<int64_t>>();
    model.outputs = m.at("outputs").get<int64_t>();
    model.regression = m.at("regression").get<bool>();
    model.iterations = m.at("iterations").get<int64_t>();
    if (m.contains("scale")) {
      model.scale = PixelScale{m.at("scale").at("mean").get<std::vector<double>>(),
                               m.at("scale").at("deviation").get<std::vector<double>>()};
    }
    std::vector<Tensor> parts;
    for (const auto& name : m.at("parts")) parts.push_back(file.tensors.at(name.get<std::string>()));
    model.x = at::cat(parts);
    model.make_learner(model.outputs, model.x.options());
    return model;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: is no model of `bilevel learn`: {}", path, error.what()));
  }
}

}  // namespace bilevel::meta
