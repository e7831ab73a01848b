#pragma once
// Where the time goes: LibTorch's own operations by name, each without those that it calls, while an object
// lives and on its thread. (Backward passes on the CPU run on the thread that asks for them.)

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class OperationTimes {
 public:
  struct Row {
    std::string name;
    double milliseconds = 0;
    int64_t calls = 0;
  };

  OperationTimes() {
    rows().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&enter, &leave).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperationTimes() { at::removeCallback(handle_); }
  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  std::vector<Row> longest(size_t count) const {
    std::vector<Row> sorted;
    for (const auto& [name, row] : rows()) sorted.push_back(row);
    std::sort(sorted.begin(), sorted.end(),
              [](const Row& a, const Row& b) { return a.milliseconds > b.milliseconds; });
    sorted.resize(std::min(count, sorted.size()));
    return sorted;
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Call : at::ObserverContext {
    std::string name;
    Time begin;
    double inside = 0;  // seconds of the operations that it calls
    Call* caller = nullptr;
  };

  static std::map<std::string, Row>& rows() {
    static thread_local std::map<std::string, Row> all;
    return all;
  }
  static Call*& current() {
    static thread_local Call* call = nullptr;
    return call;
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    call->name = function.name();
    call->caller = current();
    current() = call.get();
    call->begin = std::chrono::steady_clock::now();
    return call;
  }
  static void leave(const at::RecordFunction&, at::ObserverContext* context) {
    auto* call = static_cast<Call*>(context);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - call->begin).count();
    Row& row = rows()[call->name];
    row.name = call->name;
    row.milliseconds += 1e3 * (seconds - call->inside);
    ++row.calls;
    if (call->caller != nullptr) call->caller->inside += seconds;
    current() = call->caller;
  }

  at::CallbackHandle handle_ = 0;
};

}  // namespace bench
