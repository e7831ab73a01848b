#include "bilevel/nas/search_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/run/archive.h"

namespace bilevel::nas {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

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

// A record without its alpha; the genotype's text is read in the space.
class VisitRecord {
 public:
  explicit VisitRecord(const SearchSpace* space) : space_(space) {}
  template <typename Archive, typename Record>
  void operator()(Archive& a, Record& r) const {
    a.value("epoch", r.epoch);
    a.as("genotype", r.genotype, genotype_text,
         [this](const nlohmann::json& text) { return parse_genotype(*space_, text.get<std::string>()); });
    a.value("operation_shares", r.operation_shares);
    a.value("operation_weights", r.operation_weights);
    a.value("skips", r.skips);
    a.number("search_loss", r.search_loss);
    a.number("valid_loss", r.valid_loss);
    a.number("valid_accuracy", r.valid_accuracy);
    a.number("direction_norm", r.direction_norm);
    a.number("eigenvalue", r.eigenvalue);
    a.number("mixed_over_direct", r.implicit_over_direct);
    a.later_number("guard", r.guard);
    a.value("rate", r.rate);
    a.value("series_rate", r.linear_rate);
    a.as("benchmark", r.benchmark, values_list, values_of);
    a.as("regret", r.regret, values_list, values_of);
    a.value("benchmark_note", r.benchmark_note);
    a.value("seconds", r.seconds);
  }

 private:
  const SearchSpace* space_;  // null: nothing is taken
};

std::vector<double> doubles_of(const Tensor& t) {
  const Tensor values = t.contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}
Tensor tensor_of(const nlohmann::json& numbers) {
  return at::tensor(numbers.get<std::vector<double>>(), at::kDouble);
}

// A summary with what of its records VisitRecord leaves out.
template <typename Archive, typename Summary>
void visit_summary(Archive& a, Summary& s, const SearchSpace& space) {
  a.as(
      "end", s.end, [](SearchEnd end) { return static_cast<int>(end); },
      [](const nlohmann::json& number) { return static_cast<SearchEnd>(number.get<int>()); });
  a.value("reason", s.reason);
  a.value("chosen_epoch", s.chosen_epoch);
  a.as("genotype", s.genotype, genotype_text,
       [&space](const nlohmann::json& text) { return parse_genotype(space, text.get<std::string>()); });
  a.as("alpha", s.alpha, doubles_of, tensor_of);
  a.as("mixture", s.mixture, doubles_of, tensor_of);
  a.list("history", s.history, [&space](auto& inside, auto& record) {
    VisitRecord{&space}(inside, record);
    inside.as("alpha", record.alpha, doubles_of, tensor_of);
  });
  a.value("statuses", s.statuses);
  a.part("counts", s.counts, [](auto& inside, auto& c) {
    inside.value("inner_gradient", c.inner_gradient);
    inside.value("outer_gradient", c.outer_gradient);
    inside.value("hessian", c.hessian);
    inside.value("cross", c.cross);
    inside.value("samples", c.samples);
    inside.value("seconds", c.seconds);
  });
  a.value("seconds", s.seconds);
  a.value("notes", s.notes);
}

template <typename Archive, typename Mean>
void visit_mean(Archive& archive, const std::string& name, Mean& mean) {
  archive.tensor("search/" + name + "_sum", mean.sum);
  archive.part("search", mean, [&](auto& a, auto& m) { a.value((name + "_count").c_str(), m.count); });
}

template <typename Archive, typename State>
void visit_search(Archive& archive, State& state, const SearchSpace* space) {
  archive.state(state.algorithm);
  archive.counts(state.counts);
  visit_mean(archive, "loss", state.loss);
  visit_mean(archive, "norm", state.norm);
  visit_mean(archive, "ratio", state.ratio);
  archive.part("search", state, [space](auto& a, auto& s) {
    a.value("epoch", s.epoch);
    a.value("step", s.step);
    a.value("series_rate", s.linear_rate);
    a.value("streams", s.streams);
    a.list("history", s.history, VisitRecord(space));
    a.later_value("statuses", s.statuses);
    a.value("seconds", s.seconds);
  });
}

}  // namespace

void put_search(Checkpoint& checkpoint, const SearchState& state) {
  CheckpointPut put(checkpoint);
  visit_search(put, state, nullptr);
  std::vector<Tensor> alphas = {at::empty({0, state.algorithm.x.numel()}, at::kDouble)};
  for (const EpochRecord& r : state.history) alphas.push_back(r.alpha.unsqueeze(0));
  put.tensor("search/alphas", at::cat(alphas));
}

SearchState search_state(const Checkpoint& checkpoint, const SearchSpace& space, c10::Device device) {
  try {
    SearchState state;
    CheckpointTake take(checkpoint, device);
    visit_search(take, state, &space);
    if (state.algorithm.x.numel() != space.alpha_size()) {
      throw std::runtime_error(fmt::format("it holds an alpha of {} numbers, the space {} has {}",
                                           state.algorithm.x.numel(), space.name, space.alpha_size()));
    }
    for (const RunningMean* mean : {&state.loss, &state.norm, &state.ratio}) {
      if (mean->sum.numel() != 1) {
        throw std::runtime_error(fmt::format("a running sum has {} numbers", mean->sum.numel()));
      }
    }
    const Tensor& alphas = checkpoint.tensors.at("search/alphas");  // records are on the CPU
    for (size_t i = 0; i < state.history.size(); ++i) {
      state.history[i].alpha = alphas[static_cast<int64_t>(i)].clone();
    }
    return state;
  } catch (const std::exception& error) {  // whatever is missing or of another kind
    throw std::runtime_error(
        fmt::format("not a checkpoint of a search in space {}: {}", space.name, error.what()));
  }
}

nlohmann::json packed_summary(const SearchSummary& summary, const SearchSpace& space) {
  JsonPut put;
  visit_summary(put, summary, space);
  return put.object();
}

SearchSummary unpacked_summary(const nlohmann::json& packed, const SearchSpace& space) {
  SearchSummary summary;
  JsonTake take(packed);
  visit_summary(take, summary, space);
  return summary;
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
