#pragma once
// Files of xz as byte streams, by liblzma: checksums are verified, several streams are one content.

#include <cstdint>
#include <memory>

#include "bilevel/data/byte_source.h"

namespace bilevel {

bool has_xz();  // whether the library was built with liblzma

// Throws std::runtime_error, saying what to install, where the library was built without liblzma.
std::unique_ptr<ByteSource> open_xz(InputFile file, int64_t limit);

}  // namespace bilevel
