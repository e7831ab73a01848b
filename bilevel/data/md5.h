#pragma once
// MD5 (RFC 1321), because tables of public benchmarks name their rows by it. It protects nothing: whether a
// file is the file is sha256.h's question.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bilevel {

using Md5Digest = std::array<unsigned char, 16>;

Md5Digest md5(std::string_view bytes);
std::string md5_hex(std::string_view bytes);  // 32 lower-case digits

}  // namespace bilevel
