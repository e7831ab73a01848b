#include "bilevel/check/packed_solve.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

#include "bilevel/distributed/process_group.h"

namespace bilevel {
namespace {

Packed packed_tensor(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const Tensor here = tensor.detach().to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const uint8_t*>(here.data_ptr());
  return {{"type", static_cast<int>(here.scalar_type())},
          {"shape", here.sizes().vec()},
          {"bytes", Packed::binary(std::vector<uint8_t>(bytes, bytes + here.nbytes()))}};
}
Tensor unpacked_tensor(const Packed& packed) {
  if (packed.is_null()) return {};
  Tensor tensor = at::empty(packed.at("shape").get<std::vector<int64_t>>(),
                            static_cast<at::ScalarType>(packed.at("type").get<int>()));
  const std::vector<uint8_t>& bytes = packed.at("bytes").get_binary();
  if (bytes.size() != tensor.nbytes()) throw std::runtime_error("a rank sent a tensor of another size");
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

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

}  // namespace

Packed packed(const SolveRecord& r) {
  return {{"iteration", r.iteration},
          {"seconds", r.seconds},
          {"counts", packed_counts(r.counts)},
          {"outer_loss", r.outer_loss},
          {"direction_norm", r.direction_norm},
          {"metrics", r.metrics},
          {"x", packed_tensor(r.x)},
          {"w", packed_tensor(r.w)},
          {"x_of_w", packed_tensor(r.x_of_w)}};
}
SolveRecord unpacked_record(const Packed& p) {
  SolveRecord r;
  r.iteration = p.at("iteration").get<int64_t>();
  r.seconds = p.at("seconds").get<double>();
  r.counts = unpacked_counts(p.at("counts"));
  r.outer_loss = p.at("outer_loss").get<double>();
  r.direction_norm = p.at("direction_norm").get<double>();
  r.metrics = p.at("metrics").get<std::map<std::string, double>>();
  r.x = unpacked_tensor(p.at("x"));
  r.w = unpacked_tensor(p.at("w"));
  r.x_of_w = unpacked_tensor(p.at("x_of_w"));
  return r;
}

Packed packed(const SolveSummary& s) {
  Packed records = Packed::array(), failures = Packed::array();
  for (const SolveRecord& r : s.records) records.push_back(packed(r));
  for (const SolveFailure& f : s.failures) {
    failures.push_back({f.iteration, f.what, f.cause, f.repair, static_cast<int>(f.answer)});
  }
  return {{"algorithm", s.algorithm},      {"reason", static_cast<int>(s.reason)},
          {"message", s.message},          {"iteration", s.state.iteration},
          {"x", packed_tensor(s.state.x)}, {"w", packed_tensor(s.inner_solution)},
          {"records", std::move(records)}, {"counts", packed_counts(s.counts)},
          {"seconds", s.seconds},          {"recording_seconds", s.recording_seconds},
          {"statuses", s.statuses},        {"failures", std::move(failures)}};
}

SolveSummary unpacked(const Packed& p) {
  SolveSummary s;
  s.algorithm = p.at("algorithm").get<std::string>();
  s.reason = static_cast<StopReason>(p.at("reason").get<int>());
  s.message = p.at("message").get<std::string>();
  s.state.iteration = p.at("iteration").get<int64_t>();
  s.state.x = unpacked_tensor(p.at("x"));
  s.inner_solution = unpacked_tensor(p.at("w"));
  for (const Packed& r : p.at("records")) s.records.push_back(unpacked_record(r));
  s.counts = unpacked_counts(p.at("counts"));
  s.seconds = p.at("seconds").get<double>();
  s.recording_seconds = p.at("recording_seconds").get<double>();
  s.statuses = p.at("statuses").get<std::map<std::string, int64_t>>();
  for (const Packed& f : p.at("failures")) {
    s.failures.push_back({f.at(0).get<int64_t>(), f.at(1).get<std::string>(), f.at(2).get<std::string>(),
                          f.at(3).get<std::string>(), static_cast<FailureAnswer>(f.at(4).get<int>())});
  }
  return s;
}

std::vector<Packed> exchange_packed(ProcessGroup& group, const Packed& mine) {
  const std::vector<uint8_t> bytes = Packed::to_cbor(mine);
  std::vector<Packed> all;
  for (const std::string& text : group.gather_at_leisure(std::string(bytes.begin(), bytes.end()))) {
    all.push_back(Packed::from_cbor(text));
  }
  return all;
}

}  // namespace bilevel
