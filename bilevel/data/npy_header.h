#pragma once
// The header of a .npy file, a Python dictionary, parsed as what it may be (three keys with literals) and
// never evaluated. Apart from npy.cpp because this is the part that meets hostile text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel {

struct NpyHeader {
  std::string descr;           // as written, for example "<f4"
  bool fortran_order = false;  // the first index runs fastest
  std::vector<int64_t> shape;  // lengths of 0 or more, at most 64 of them; their product is not checked here
};

// `path` and `offset`, where the text begins in the file, are for the std::runtime_error of a text that is
// wrong.
NpyHeader parse_npy_header(const std::string& path, int64_t offset, std::string_view text);

[[noreturn]] void npy_error(const std::string& path, int64_t offset, std::string_view expected,
                            std::string_view found, std::string_view hint);

std::string printable(std::string_view bytes);  // the first bytes in quotes, with what is not ASCII escaped

}  // namespace bilevel
