#pragma once
// Work that may run beside other work. On a GPU every branch is a stream of its own that begins where the
// current one stands; a captured graph keeps the fork. On the CPU a branch runs at once.
//
// What a branch reads or writes must live until it was joined: memory that is free may be given away at once.

#include <memory>

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

class Branches {
 public:
  explicit Branches(const Tensor& where);
  ~Branches();
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  static constexpr size_t count = 3;
  // work() on branch `which` (0 .. count - 1), after all that the current stream was asked so far.
  template <typename Work>
  void run(size_t which, const Work& work) {
    enter(which);
    work();
    leave();
  }
  void join(size_t which);  // the current stream goes on when the branch is done
  void join_all();

 private:
  void enter(size_t which);
  void leave();

  struct Streams;
  std::unique_ptr<Streams> streams_;  // none on the CPU
};

}  // namespace bilevel::nas
