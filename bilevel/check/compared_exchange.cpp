#include "bilevel/check/compared_exchange.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "bilevel/check/packed_solve.h"
#include "bilevel/distributed/process_group.h"

namespace bilevel {
namespace {

Packed packed_record(const ComparedRecord& r) {
  Packed p = {{"record", packed(r.record)}, {"value", r.value}};
  if (r.gradient_norm) p["gradient_norm"] = *r.gradient_norm;
  return p;
}
ComparedRecord compared_record(const Packed& p) {
  ComparedRecord r;
  r.record = unpacked_record(p.at("record"));
  r.value = p.at("value").get<double>();
  if (p.contains("gradient_norm")) r.gradient_norm = p.at("gradient_norm").get<double>();
  return r;
}

Packed packed_run(const ComparedRun& run) {
  Packed records = Packed::array();
  for (const ComparedRecord& r : run.records) records.push_back(packed_record(r));
  return {{"seed", run.seed}, {"summary", packed(run.summary)}, {"records", std::move(records)}};
}
ComparedRun unpacked_run(const Packed& p, const at::TensorOptions& tensors) {
  ComparedRun run;
  run.seed = p.at("seed").get<uint64_t>();
  run.summary = unpacked(p.at("summary"));
  run.summary.state.x = run.summary.state.x.to(tensors);
  for (const Packed& r : p.at("records")) run.records.push_back(compared_record(r));
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
  std::string first_why;
  size_t first_at = std::numeric_limits<size_t>::max();
  for (const Packed& theirs : exchange_packed(group, mine)) {
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
