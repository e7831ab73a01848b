#pragma once
// Height and width of a picture.

#include <cstdint>

namespace bilevel {

struct PictureSize {
  int64_t height = 0, width = 0;
  bool operator==(const PictureSize&) const = default;
  bool is_set() const { return height > 0; }
};

}  // namespace bilevel
