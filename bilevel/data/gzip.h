#pragma once
// Gzip files (RFC 1952) as byte streams, by zlib: checksums are verified, several members are one content.

#include <cstdint>
#include <memory>

#include "bilevel/data/byte_source.h"

namespace bilevel {

bool has_gzip();  // whether the library was built with zlib

// Throws std::runtime_error, saying what to install, where the library was built without zlib.
std::unique_ptr<ByteSource> open_gzip(InputFile file, int64_t limit);

}  // namespace bilevel
