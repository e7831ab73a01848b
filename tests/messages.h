#pragma once
// What an exception says, so that a test can look for the option, the value and the bound in it.

#include <stdexcept>
#include <string>

namespace bilevel::test {

template <typename Error = std::invalid_argument, typename Call>
std::string message(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace bilevel::test
