#pragma once
// What every loop that can be interrupted and resumed does, whatever it runs: solve(), a search of
// architectures, learning across tasks, training. Its hooks have three members for it:
//
//     std::function<void(const State& state)> save;  // a state to go on from: between two steps when it is
//                                                    // due, and at every end
//     double save_seconds = 10;                      // from one save to the next
//     std::function<bool()> interrupted;             // asked after every step; true ends with a save

#include <chrono>

namespace bilevel {

template <typename Hooks>
class Resumable {
 public:
  explicit Resumable(const Hooks& hooks) : hooks_(hooks) {}

  bool interrupted() const { return hooks_.interrupted && hooks_.interrupted(); }
  bool save_due() const {
    const std::chrono::duration<double> passed = Clock::now() - saved_;
    return hooks_.save && passed.count() >= hooks_.save_seconds;
  }
  template <typename State>
  void save(const State& state) {
    if (hooks_.save) hooks_.save(state);
    saved_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Hooks& hooks_;
  Clock::time_point saved_ = Clock::now();
};

}  // namespace bilevel
