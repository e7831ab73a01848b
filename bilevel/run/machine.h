#pragma once
// What the numbers of a run depend on beside the code: the version, LibTorch, the BLAS, the processor and the
// threads.

#include <string>
#include <vector>

namespace bilevel {

struct MachineFacts {
  std::string version;                // of bilevel
  std::string torch;                  // of LibTorch
  std::string blas;                   // the library that is really loaded, with its own description
  std::string cpu;                    // the processor's name for itself; empty = it does not say
  int threads = 1;                    // of LibTorch's pool
  bool cuda = false;                  // a GPU can be used
  std::vector<std::string> warnings;  // what makes this set-up slow or its bits unstable
};
MachineFacts machine_facts();

// One sentence for each difference by which a run resumed `now` may have other bits than one that had
// stayed where it was `then`; empty where there is none.
std::vector<std::string> differences(const MachineFacts& then, const MachineFacts& now);

}  // namespace bilevel
