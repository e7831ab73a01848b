#pragma once
// The bounds of options, and names that must be known. All throw std::invalid_argument in the same words:
// what was given, and what must hold, "inner_rate = -1: must be finite and above 0". An owner goes before it:
// "cg: tolerance = -1: must be ...".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel {

void require(bool holds, std::string_view option, double value, std::string_view bound);
void require(bool holds, std::string_view option, int64_t value, std::string_view bound);

void require_at_least(std::string_view option, int64_t value, int64_t least);
void require_between(std::string_view option, int64_t value, int64_t least, int64_t most);
void require_positive(std::string_view option, double value);         // finite and above 0
void require_nonnegative(std::string_view option, double value);      // finite and at least 0
void require_below_one(std::string_view option, double value);        // at least 0 and below 1
void require_between_0_and_1(std::string_view option, double value);  // above 0 and below 1

void require_at_least(std::string_view owner, std::string_view option, int64_t value, int64_t least);
void require_positive(std::string_view owner, std::string_view option, double value);
void require_nonnegative(std::string_view owner, std::string_view option, double value);
void require_below_one(std::string_view owner, std::string_view option, double value);

// "algorithm 'gradient' is unknown: choose from itd, soba".
[[noreturn]] void refuse_unknown(std::string_view what, std::string_view name,
                                 const std::vector<std::string>& choices);

}  // namespace bilevel
