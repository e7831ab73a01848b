#pragma once
// The most suspect examples as a report shows them: suspects.json with the classes by name, and, where the
// examples are images, suspects/001.png and so on in the same order.

#include <cstddef>
#include <string>

#include "bilevel/clean/clean.h"
#include "bilevel/problems/cleaning_sets.h"

namespace bilevel {

inline constexpr size_t most_suspect_pictures = 48;

// Into the run's folder, which exists.
void write_suspect_pictures(const CleaningSets& sets, const CleanResult& result, const std::string& folder);

}  // namespace bilevel
