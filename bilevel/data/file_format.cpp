// Which format a file of examples has.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

constexpr std::string_view accepted =
    "IDX (.idx, -ubyte), NumPy (.npy), a table (.csv, .tsv) or svmlight (.svm, .svmlight, .libsvm); all but "
    ".npy may be compressed as .gz or .xz";
constexpr int64_t probe_bytes = 1 << 16;

std::optional<FileFormat> format_of_name(std::string name) {
  for (const std::string_view compressed : {".gz", ".xz"}) {
    if (name.ends_with(compressed)) name.resize(name.size() - compressed.size());
  }
  constexpr std::array<std::pair<std::string_view, FileFormat>, 8> endings{
      {{".idx", FileFormat::idx},
       {"-ubyte", FileFormat::idx},
       {".npy", FileFormat::npy},
       {".csv", FileFormat::csv},
       {".tsv", FileFormat::tsv},
       {".svm", FileFormat::svmlight},
       {".svmlight", FileFormat::svmlight},
       {".libsvm", FileFormat::svmlight}}};
  for (const auto& [ending, format] : endings) {
    if (name.ends_with(ending)) return format;
  }
  return std::nullopt;
}

// The first line that says something: svmlight has pairs INDEX:VALUE, a table separators or one number a
// line.
std::optional<FileFormat> format_of_text(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.find(',') != std::string_view::npos) return FileFormat::csv;
    if (line.find(':') != std::string_view::npos) return FileFormat::svmlight;
    if (line.find('\t') != std::string_view::npos) return FileFormat::tsv;
    if (line.find(';') != std::string_view::npos) return FileFormat::csv;
    double ignored = 0;
    if (parse_number(line, ignored)) return FileFormat::csv;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(FileFormat format) {
  constexpr std::array<std::string_view, 5> names{"IDX", "NPY", "CSV", "TSV", "svmlight"};
  return names.at(static_cast<size_t>(format));
}

FileFormat file_format(const std::string& path) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, int64_t{1} << 40);
  if (const auto by_name = format_of_name(path)) return *by_name;
  std::string begin(probe_bytes, '\0');
  begin.resize(source->read(begin.data(), begin.size()));
  if (begin.empty()) line_error(path, 0, accepted, "an empty file", "check the path, or how it was written");
  if (begin.starts_with("\x93NUMPY")) return FileFormat::npy;
  if (begin.starts_with(std::string_view("\0\0", 2))) return FileFormat::idx;
  if (const auto by_text = format_of_text(begin)) return *by_text;
  byte_error(path, 0, accepted, printable(begin), "convert it, or give it the ending of its format");
}

}  // namespace bilevel
