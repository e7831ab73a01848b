#pragma once
// Where the time goes: operations of LibTorch and our own passes by name, while an object lives and on its
// thread. (Backward passes on the CPU run on the thread that asks for them.)

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bilevel {

class OperationTimes {
 public:
  struct Row {
    std::string name;
    double own = 0, whole = 0;  // seconds without and with the operations that it calls
    int64_t calls = 0;
  };

  // `wait` is called before and after each oracle call: where a device works on its own, the time between is
  // the call's.
  explicit OperationTimes(std::function<void()> wait = {}) {
    state() = {};
    state().wait = std::move(wait);
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&enter, &leave)
                                       .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  ~OperationTimes() { at::removeCallback(handle_); }
  OperationTimes(const OperationTimes&) = delete;
  OperationTimes& operator=(const OperationTimes&) = delete;

  double seconds() const { return since(begin_); }                // since construction
  std::vector<Row> oracle_calls() const { return sorted(true); }  // by whole time
  std::vector<Row> operations() const { return sorted(false); }   // all others, by their own time

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Call : at::ObserverContext {
    std::string name;
    Time begin;
    double inside = 0;  // seconds of the operations that it calls
    Call* caller = nullptr;
  };
  struct State {
    std::map<std::string, Row> rows;
    Call* current = nullptr;
    std::function<void()> wait;
  };

  static double since(Time begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  static bool of_oracle(const std::string& name) { return name.rfind("oracle: ", 0) == 0; }
  static State& state() {
    static thread_local State own;
    return own;
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    call->name = function.name();
    if (state().wait && of_oracle(call->name)) state().wait();
    call->caller = state().current;
    state().current = call.get();
    call->begin = std::chrono::steady_clock::now();
    return call;
  }
  static void leave(const at::RecordFunction&, at::ObserverContext* context) {
    auto* call = static_cast<Call*>(context);
    if (state().wait && of_oracle(call->name)) state().wait();
    const double seconds = since(call->begin);
    Row& row = state().rows[call->name];
    row.name = call->name;
    row.own += seconds - call->inside;
    row.whole += seconds;
    ++row.calls;
    if (call->caller != nullptr) call->caller->inside += seconds;
    state().current = call->caller;
  }
  std::vector<Row> sorted(bool oracle) const {
    std::vector<Row> all;
    for (const auto& [name, row] : state().rows) {
      if (of_oracle(name) == oracle) all.push_back(row);
    }
    std::sort(all.begin(), all.end(),
              [&](const Row& a, const Row& b) { return oracle ? a.whole > b.whole : a.own > b.own; });
    return all;
  }

  Time begin_ = std::chrono::steady_clock::now();
  at::CallbackHandle handle_ = 0;
};

}  // namespace bilevel
