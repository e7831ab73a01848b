#pragma once
// Numbers as the tables of commands print them.

#include <cstdint>
#include <string>

namespace bilevel::cli {

std::string number_text(double value, const char* format = "{:.3g}");  // "-" where it is not finite
std::string bytes_text(int64_t bytes);

}  // namespace bilevel::cli
