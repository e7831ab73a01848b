#pragma once
// Folders on the disk. By the system's own calls, not std::filesystem: LibTorch 2's wheels export parts of an
// older libstdc++'s that clash with ours.

#include <string>
#include <vector>

namespace bilevel {

bool is_folder(const std::string& path);

// In alphabetical order, without hidden ones. Throws std::runtime_error where the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace bilevel
