#pragma once
// Files are written beside their place and renamed, so that a reader sees the old file or the whole new one.

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace bilevel {

// Throws std::runtime_error naming the file and the cause; nothing is left behind then.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);
void write_file(const std::string& path, std::string_view content);

// Makes the folder and those above it. Throws FileError with the folder and the cause.
void make_folder(const std::string& folder);

}  // namespace bilevel
