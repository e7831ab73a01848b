#pragma once
// The one exception that is neither misuse (std::invalid_argument) nor a file's fault: the mathematics left
// the finite numbers. Its message says where and what to change.

#include <stdexcept>

namespace bilevel {

class NotFiniteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace bilevel
