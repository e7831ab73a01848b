#pragma once
// The most suspect examples as a report shows them: suspects.json with the classes by name, and, where the
// examples are images, suspects/001.png and so on in the same order.

#include "cli/clean_output.h"

namespace bilevel::cli {

inline constexpr size_t most_pictures = 48;

void write_suspect_pictures(const CleanOutput& output);

}  // namespace bilevel::cli
