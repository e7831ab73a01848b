#pragma once
// What the tests of the readers share: files made of bytes by hand, and the message
// of what is thrown.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/temporary_folder.h"

namespace bilevel::test {

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline bool exists(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

template <typename Error = std::runtime_error, typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Every proper prefix of a file must be refused by a message that begins with the file's name.
template <typename Read>
void expect_every_prefix_refused(const TemporaryFolder& folder, std::string_view name,
                                 const std::string& whole, const Read& read) {
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string path = folder.put(name, std::string_view(whole).substr(0, length));
    const std::string message = message_of([&] { read(path); });
    ASSERT_TRUE(message.starts_with(path + ": "))
        << length << " of " << whole.size() << " bytes: " << message;
  }
  const std::string path = folder.put(name, whole);
  ASSERT_EQ(message_of([&] { read(path); }), "nothing was thrown");
}

inline std::string little_endian(uint32_t value, int bytes) {
  std::string result;
  for (int i = 0; i < bytes; ++i) result += static_cast<char>(value >> (8 * i) & 0xff);
  return result;
}
inline std::string big_endian(uint32_t value) {
  std::string result;
  for (int shift = 24; shift >= 0; shift -= 8) result += static_cast<char>(value >> shift & 0xff);
  return result;
}

// A file of MNIST's format: its type, its shape, the bytes of its values.
inline std::string idx(char type, const std::vector<uint32_t>& shape, const std::string& values) {
  std::string file{'\0', '\0', type, static_cast<char>(shape.size())};
  for (const uint32_t length : shape) file += big_endian(length);
  return file + values;
}
inline std::string idx(const std::vector<uint32_t>& shape, const std::string& values) {
  return idx(8, shape, values);
}

inline uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

// A .gz file of stored blocks, after RFC 1951 and 1952: no zlib is needed to make one.
inline std::string gzip(std::string_view content) {
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  std::string_view left = content;
  do {
    const std::string_view block = left.substr(0, 60000);
    left.remove_prefix(block.size());
    const auto length = static_cast<uint32_t>(block.size());
    file += left.empty() ? '\1' : '\0';
    file += little_endian(length, 2) + little_endian(~length, 2);
    file += block;
  } while (!left.empty());
  return file + little_endian(crc32(content), 4) + little_endian(static_cast<uint32_t>(content.size()), 4);
}

inline std::string from_hex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// One entry of a tar archive, after POSIX's ustar; the archive ends by tar_end.
inline std::string tar_entry(std::string_view name, std::string_view content, char type = '0',
                             std::string_view prefix = "", int64_t size = -1) {
  std::string block(512, '\0');
  const auto set = [&](size_t offset, std::string_view text) { block.replace(offset, text.size(), text); };
  set(0, name.substr(0, 100));
  set(100, "0000644");
  set(124, fmt::format("{:011o}", size < 0 ? static_cast<int64_t>(content.size()) : size));
  set(148, "        ");
  block[156] = type;
  set(257, std::string_view("ustar\00000", 8));
  set(345, prefix);
  int sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  set(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  std::string padded(content);
  padded.resize((content.size() + 511) / 512 * 512, '\0');
  return block + padded;
}
inline const std::string tar_end(1024, '\0');

// The folder of data that no package ships, beside the checkout or named by BILEVEL_SHARED; empty if missing.
inline std::string shared_data(std::string_view name) {
  const char* shared = std::getenv("BILEVEL_SHARED");
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  const std::string folder = shared != nullptr   ? shared
                             : source != nullptr ? std::string(source) + "/../shared"
                                                 : "../shared";
  const std::string path = fmt::format("{}/data/{}", folder, name);
  return exists(path) ? path : "";
}

}  // namespace bilevel::test
