#include "bilevel/jobs/saved_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

constexpr std::array<std::string_view, 4> kind_names{"linear", "tasks", "cnn", "network"};
constexpr int64_t largest_model_json = int64_t{1} << 28;
constexpr const char* saved_model_file = "model.json";

[[noreturn]] void wrong_model(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format(
      "{}: expected the description that a job writes beside its model, found {}; run the job again", path,
      why));
}

}  // namespace

Json saved_model_json(const SavedModel& m) {
  Json json = {
      {"job", m.job}, {"kind", kind_names.at(static_cast<size_t>(m.kind))}, {"class_names", m.class_names}};
  if (m.kind == SavedModel::Kind::network) {
    json["space"] = m.space;
    json["genotype"] = m.genotype;
    json["network"] = {{"channels", m.network.channels},
                       {"cells", m.network.cells},
                       {"input_channels", m.network.input_channels},
                       {"height", m.network.height},
                       {"width", m.network.width},
                       {"imagenet", m.network.imagenet_stem},
                       {"auxiliary", m.network.auxiliary}};
    json["mean"] = m.mean;
    json["std"] = m.std;
    return json;
  }
  json["intercept"] = m.has_intercept;
  if (m.kind == SavedModel::Kind::tasks) {
    json["task_names"] = m.task_names;
    json["classes_are_tasks"] = m.classes_are_tasks;
  }
  json["schema"] = schema_json(m.schema);
  return json;
}

void write_saved_model(const std::string& folder, const SavedModel& model) {
  write_file(fmt::format("{}/{}", folder, saved_model_file), saved_model_json(model).dump(2) + "\n");
}

SavedModel read_saved_model(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, saved_model_file);
  if (!std::filesystem::exists(path)) {
    if (std::filesystem::exists(folder + "/regularisers.csv")) {
      throw OptionError(
          fmt::format("{}: it tuned the posts of 20 Newsgroups, whose words are not kept with the model, so "
                      "that it cannot read others; its weights are in model.npy",
                      named("run", folder)));
    }
    throw OptionError(
        fmt::format("{}: there is no {} in it; give the folder of a finished run of clean, tune, interact, "
                    "learn or train",
                    named("run", folder), saved_model_file));
  }
  const Json json = Json::parse(read_file(path, largest_model_json), nullptr, /*allow_exceptions=*/false);
  return saved_model_of(json, path);
}

SavedModel saved_model_of(const Json& json, const std::string& path) {
  if (!json.is_object()) wrong_model(path, "no JSON object");
  SavedModel m;
  try {
    json.at("job").get_to(m.job);
    const auto kind = json.at("kind").get<std::string>();
    const auto found = std::find(kind_names.begin(), kind_names.end(), kind);
    if (found == kind_names.end()) wrong_model(path, fmt::format("a model of kind \"{}\"", kind));
    m.kind = static_cast<SavedModel::Kind>(found - kind_names.begin());
    json.at("class_names").get_to(m.class_names);
    if (m.kind == SavedModel::Kind::network) {
      json.at("space").get_to(m.space);
      json.at("genotype").get_to(m.genotype);
      const Json& network = json.at("network");
      network.at("channels").get_to(m.network.channels);
      network.at("cells").get_to(m.network.cells);
      network.at("input_channels").get_to(m.network.input_channels);
      network.at("height").get_to(m.network.height);
      network.at("width").get_to(m.network.width);
      network.at("imagenet").get_to(m.network.imagenet_stem);
      network.at("auxiliary").get_to(m.network.auxiliary);
      m.network.classes = static_cast<int64_t>(m.class_names.size());
      json.at("mean").get_to(m.mean);
      json.at("std").get_to(m.std);
    } else {
      json.at("intercept").get_to(m.has_intercept);
      if (m.kind == SavedModel::Kind::tasks) {
        json.at("task_names").get_to(m.task_names);
        json.at("classes_are_tasks").get_to(m.classes_are_tasks);
      }
      m.schema = schema_of(json.at("schema"), path);
    }
  } catch (const Json::exception& error) {
    wrong_model(path, error.what());
  }
  return m;
}

}  // namespace bilevel
