#pragma once
// Checksums of 32 bits, with the two polynomials that files use: zip's, and Castagnoli's (RFC 3720).

#include <cstdint>
#include <string_view>

namespace bilevel {

uint32_t crc32(std::string_view bytes);   // of zip, gzip and PNG
uint32_t crc32c(std::string_view bytes);  // of iSCSI and TFRecord

}  // namespace bilevel
