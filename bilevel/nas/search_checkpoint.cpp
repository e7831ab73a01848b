#include "bilevel/nas/search_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/run/json_value.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel::nas {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Json values_json(const BenchmarkValues& values) {
  Json out = Json::object();
  for (const auto& [column, value] : values) out[column] = value;
  return out;
}

// Order matters to people: the table's columns come back as they went.
nlohmann::json values_list(const BenchmarkValues& values) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [column, value] : values) out.push_back(nlohmann::json::array({column, value}));
  return out;
}
BenchmarkValues values_of(const nlohmann::json& list) {
  BenchmarkValues values;
  for (const auto& pair : list) values.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<double>());
  return values;
}

nlohmann::json record_metadata(const EpochRecord& r) {
  return {{"epoch", r.epoch},
          {"genotype", genotype_text(r.genotype)},
          {"operation_shares", r.operation_shares},
          {"operation_weights", r.operation_weights},
          {"skips", r.skips},
          {"search_loss", number(r.search_loss)},
          {"valid_loss", number(r.valid_loss)},
          {"valid_accuracy", number(r.valid_accuracy)},
          {"direction_norm", number(r.direction_norm)},
          {"eigenvalue", number(r.eigenvalue)},
          {"mixed_over_direct", number(r.implicit_over_direct)},
          {"guard", number(r.guard)},
          {"rate", r.rate},
          {"series_rate", r.linear_rate},
          {"benchmark", values_list(r.benchmark)},
          {"regret", values_list(r.regret)},
          {"benchmark_note", r.benchmark_note},
          {"seconds", r.seconds}};
}

EpochRecord record_of(const nlohmann::json& j, const SearchSpace& space) {
  EpochRecord r;
  r.epoch = json_as<int64_t>(j.at("epoch"));
  r.genotype = parse_genotype(space, j.at("genotype").get<std::string>());
  r.operation_shares = j.at("operation_shares").get<std::vector<double>>();
  r.operation_weights = j.at("operation_weights").get<std::vector<double>>();
  r.skips = json_as<int64_t>(j.at("skips"));
  r.search_loss = number(j.at("search_loss"));
  r.valid_loss = number(j.at("valid_loss"));
  r.valid_accuracy = number(j.at("valid_accuracy"));
  r.direction_norm = number(j.at("direction_norm"));
  r.eigenvalue = number(j.at("eigenvalue"));
  r.implicit_over_direct = number(j.at("mixed_over_direct"));
  r.guard = number(j.value("guard", nlohmann::json()));  // null, too, in a run from before there were guards
  r.rate = j.at("rate").get<double>();
  r.linear_rate = j.at("series_rate").get<double>();
  r.benchmark = values_of(j.at("benchmark"));
  r.regret = values_of(j.at("regret"));
  r.benchmark_note = j.at("benchmark_note").get<std::string>();
  r.seconds = j.at("seconds").get<double>();
  return r;
}

void put_mean(Checkpoint& checkpoint, const std::string& name, const RunningMean& mean) {
  checkpoint.tensors["search/" + name + "_sum"] = mean.sum;
  checkpoint.metadata["search"][name + "_count"] = mean.count;
}
RunningMean take_mean(const Checkpoint& checkpoint, const std::string& name, c10::Device device) {
  const Tensor& sum = checkpoint.tensors.at("search/" + name + "_sum");
  if (sum.numel() != 1) throw std::runtime_error(fmt::format("its {}_sum has {} numbers", name, sum.numel()));
  return {.sum = sum.to(device),
          .count = json_as<int64_t>(checkpoint.metadata.at("search").at(name + "_count"))};
}

}  // namespace

Checkpoint search_checkpoint(const SearchState& state) {
  Checkpoint checkpoint;
  put_state(checkpoint, state.algorithm);
  put_counts(checkpoint, state.counts);
  put_mean(checkpoint, "loss", state.loss);
  put_mean(checkpoint, "norm", state.norm);
  put_mean(checkpoint, "ratio", state.ratio);
  std::vector<Tensor> alphas = {at::empty({0, state.algorithm.x.numel()}, at::kDouble)};
  nlohmann::json history = nlohmann::json::array();
  for (const EpochRecord& r : state.history) {
    history.push_back(record_metadata(r));
    alphas.push_back(r.alpha.unsqueeze(0));
  }
  checkpoint.tensors["search/alphas"] = at::cat(alphas);
  checkpoint.metadata["search"].update({{"epoch", state.epoch},
                                        {"step", state.step},
                                        {"series_rate", state.linear_rate},
                                        {"streams", state.streams},
                                        {"history", history},
                                        {"statuses", state.statuses},
                                        {"seconds", state.seconds}});
  return checkpoint;
}

SearchState search_state(const Checkpoint& checkpoint, const SearchSpace& space, c10::Device device) {
  try {
    SearchState state;
    state.algorithm = take_state(checkpoint, device);
    if (state.algorithm.x.numel() != space.alpha_size()) {
      throw std::runtime_error(fmt::format("it holds an alpha of {} numbers, the space {} has {}",
                                           state.algorithm.x.numel(), space.name, space.alpha_size()));
    }
    state.counts = take_counts(checkpoint);
    state.loss = take_mean(checkpoint, "loss", device);
    state.norm = take_mean(checkpoint, "norm", device);
    state.ratio = take_mean(checkpoint, "ratio", device);
    const Tensor alphas = checkpoint.tensors.at("search/alphas");
    const nlohmann::json& search = checkpoint.metadata.at("search");
    state.epoch = json_as<int64_t>(search.at("epoch"));
    state.step = json_as<int64_t>(search.at("step"));
    state.linear_rate = search.at("series_rate").get<double>();
    state.streams = json_as<std::map<std::string, int64_t>>(search.at("streams"));
    state.seconds = search.at("seconds").get<double>();
    if (const auto statuses = search.find("statuses"); statuses != search.end()) {
      state.statuses = json_as<StatusCounts>(*statuses);
    }
    for (const auto& r : search.at("history")) {
      state.history.push_back(record_of(r, space));
      state.history.back().alpha = alphas[static_cast<int64_t>(state.history.size()) - 1].clone();
    }
    return state;
  } catch (const std::exception& error) {  // whatever is missing or of another kind
    throw std::runtime_error(
        fmt::format("the checkpoint is none of a search in the space {}: {}", space.name, error.what()));
  }
}

nlohmann::ordered_json epoch_json(const SearchSpace& space, const EpochRecord& r) {
  Json shares = Json::object(), weights = Json::object();
  for (size_t o = 0; o < space.operations.size(); ++o) {
    shares[space.operations[o]] = r.operation_shares.at(o);
    weights[space.operations[o]] = r.operation_weights.at(o);
  }
  Json out = {{"epoch", r.epoch},
              {"genotype", genotype_text(r.genotype)},
              {"search_loss", number(r.search_loss)},
              {"valid_loss", number(r.valid_loss)},
              {"valid_accuracy", number(r.valid_accuracy)},
              {"direction_norm", number(r.direction_norm)},
              {"eigenvalue", number(r.eigenvalue)},
              {"mixed_over_direct", number(r.implicit_over_direct)},
              {"guard", number(r.guard)},
              {"rate", r.rate},
              {"series_rate", r.linear_rate},
              {"skips", r.skips},
              {"operation_shares", shares},
              {"operation_weights", weights}};
  if (!r.benchmark.empty()) {
    out["benchmark"] = values_json(r.benchmark);
    out["regret"] = values_json(r.regret);
  }
  if (!r.benchmark_note.empty()) out["benchmark_note"] = r.benchmark_note;
  out["alpha"] =
      std::vector<double>(r.alpha.data_ptr<double>(), r.alpha.data_ptr<double>() + r.alpha.numel());
  out["seconds"] = r.seconds;
  return out;
}

}  // namespace bilevel::nas
