#include "bilevel/check/compared_exchange.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "bilevel/distributed/process_group.h"

namespace bilevel {
namespace {

using Packed = nlohmann::json;  // as CBOR, which keeps every double, infinities too

Packed packed_counts(const OracleCounts& c) {
  return {c.inner_gradient, c.outer_gradient, c.hessian, c.cross, c.samples, c.seconds};
}
OracleCounts unpacked_counts(const Packed& p) {
  return {.inner_gradient = p.at(0).get<int64_t>(),
          .outer_gradient = p.at(1).get<int64_t>(),
          .hessian = p.at(2).get<int64_t>(),
          .cross = p.at(3).get<int64_t>(),
          .samples = p.at(4).get<int64_t>(),
          .seconds = p.at(5).get<double>()};
}

Packed packed_record(const ComparedRecord& r) {
  Packed p = {{"iteration", r.record.iteration},
              {"seconds", r.record.seconds},
              {"counts", packed_counts(r.record.counts)},
              {"outer_loss", r.record.outer_loss},
              {"direction_norm", r.record.direction_norm},
              {"metrics", r.record.metrics},
              {"value", r.value}};
  if (r.gradient_norm) p["gradient_norm"] = *r.gradient_norm;
  return p;
}
ComparedRecord unpacked_record(const Packed& p) {
  ComparedRecord r;
  r.record.iteration = p.at("iteration").get<int64_t>();
  r.record.seconds = p.at("seconds").get<double>();
  r.record.counts = unpacked_counts(p.at("counts"));
  r.record.outer_loss = p.at("outer_loss").get<double>();
  r.record.direction_norm = p.at("direction_norm").get<double>();
  r.record.metrics = p.at("metrics").get<std::map<std::string, double>>();
  r.value = p.at("value").get<double>();
  if (p.contains("gradient_norm")) r.gradient_norm = p.at("gradient_norm").get<double>();
  return r;
}

Packed packed_run(const ComparedRun& run) {
  const SolveSummary& s = run.summary;
  const Tensor x = s.state.x.detach().to(at::kCPU, at::kDouble).contiguous();
  Packed failures = Packed::array(), records = Packed::array();
  for (const SolveFailure& f : s.failures) failures.push_back({f.iteration, f.what, f.cause, f.repair});
  for (const ComparedRecord& r : run.records) records.push_back(packed_record(r));
  return {{"seed", run.seed},
          {"algorithm", s.algorithm},
          {"reason", static_cast<int>(s.reason)},
          {"message", s.message},
          {"iteration", s.state.iteration},
          {"x", std::vector<double>(x.data_ptr<double>(), x.data_ptr<double>() + x.numel())},
          {"counts", packed_counts(s.counts)},
          {"seconds", s.seconds},
          {"recording_seconds", s.recording_seconds},
          {"statuses", s.statuses},
          {"failures", failures},
          {"records", records}};
}
ComparedRun unpacked_run(const Packed& p, const at::TensorOptions& tensors) {
  ComparedRun run;
  SolveSummary& s = run.summary;
  run.seed = p.at("seed").get<uint64_t>();
  s.algorithm = p.at("algorithm").get<std::string>();
  s.reason = static_cast<StopReason>(p.at("reason").get<int>());
  s.message = p.at("message").get<std::string>();
  s.state.iteration = p.at("iteration").get<int64_t>();
  s.state.x = at::tensor(p.at("x").get<std::vector<double>>(), at::kDouble).to(tensors);
  s.counts = unpacked_counts(p.at("counts"));
  s.seconds = p.at("seconds").get<double>();
  s.recording_seconds = p.at("recording_seconds").get<double>();
  s.statuses = p.at("statuses").get<std::map<std::string, int64_t>>();
  for (const Packed& f : p.at("failures")) {
    s.failures.push_back({f.at(0).get<int64_t>(), f.at(1).get<std::string>(), f.at(2).get<std::string>(),
                          f.at(3).get<std::string>()});
  }
  for (const Packed& r : p.at("records")) run.records.push_back(unpacked_record(r));
  return run;
}

Packed packed_algorithm(const ComparedAlgorithm& a) {
  Packed runs = Packed::array();
  for (const ComparedRun& run : a.runs) runs.push_back(packed_run(run));
  return {{"name", a.name},
          {"family", static_cast<int>(a.family)},
          {"inner_steps", a.inner_steps},
          {"inner_rate", a.inner_rate},
          {"outer_rate", a.outer_rate},
          {"candidates", a.candidates},
          {"failed_candidates", a.failed_candidates},
          {"dropped_candidates", a.dropped_candidates},
          {"schedule_iterations", a.schedule_iterations},
          {"runs", runs}};
}
ComparedAlgorithm unpacked_algorithm(const Packed& p, const at::TensorOptions& tensors) {
  ComparedAlgorithm a;
  a.name = p.at("name").get<std::string>();
  a.family = static_cast<Family>(p.at("family").get<int>());
  a.inner_steps = p.at("inner_steps").get<int64_t>();
  a.inner_rate = p.at("inner_rate").get<double>();
  a.outer_rate = p.at("outer_rate").get<double>();
  a.candidates = p.at("candidates").get<int64_t>();
  a.failed_candidates = p.at("failed_candidates").get<int64_t>();
  a.dropped_candidates = p.at("dropped_candidates").get<int64_t>();
  a.schedule_iterations = p.at("schedule_iterations").get<int64_t>();
  for (const Packed& run : p.at("runs")) a.runs.push_back(unpacked_run(run, tensors));
  return a;
}

}  // namespace

bool is_dealt_here(size_t algorithm, const ProcessGroup* group) {
  return group == nullptr ||
         algorithm % static_cast<size_t>(group->size()) == static_cast<size_t>(group->rank());
}

std::string exchange_compared(ProcessGroup& group, const at::TensorOptions& tensors,
                              std::vector<ComparedAlgorithm>& algorithms, const std::string& why, size_t at) {
  Packed mine = {{"why", why}, {"at", at}, {"algorithms", Packed::array()}};
  for (size_t i = 0; i < algorithms.size(); ++i) {
    if (is_dealt_here(i, &group))
      mine["algorithms"].push_back({{"index", i}, {"what", packed_algorithm(algorithms[i])}});
  }
  const std::vector<uint8_t> bytes = Packed::to_cbor(mine);
  std::string first_why;
  size_t first_at = std::numeric_limits<size_t>::max();
  for (const std::string& text : group.gather_at_leisure(std::string(bytes.begin(), bytes.end()))) {
    const Packed theirs = Packed::from_cbor(text);
    for (const Packed& one : theirs.at("algorithms")) {
      const auto index = one.at("index").get<size_t>();
      if (!is_dealt_here(index, &group)) algorithms.at(index) = unpacked_algorithm(one.at("what"), tensors);
    }
    const auto there = theirs.at("at").get<size_t>();
    if (const auto their_why = theirs.at("why").get<std::string>(); !their_why.empty() && there < first_at) {
      first_why = their_why;
      first_at = there;
    }
  }
  return first_why;
}

}  // namespace bilevel
