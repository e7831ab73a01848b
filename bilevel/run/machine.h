#pragma once
// What the numbers of a run depend on beside the code: the version, LibTorch, the BLAS and the threads.

#include <string>
#include <vector>

namespace bilevel {

struct MachineFacts {
  std::string version;                // of bilevel
  std::string torch;                  // of LibTorch
  std::string blas;                   // the library that is really loaded, with its own description
  int threads = 1;                    // of LibTorch's pool
  bool cuda = false;                  // a GPU can be used
  std::vector<std::string> warnings;  // what makes this set-up slow or its bits unstable
};
MachineFacts machine_facts();

}  // namespace bilevel
