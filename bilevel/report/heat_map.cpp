#include "bilevel/report/heat_map.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/process.h"
#include "bilevel/data/temporary_folder.h"
#include "bilevel/data/write_file.h"

namespace bilevel {
namespace {

constexpr int64_t largest_heat_map = int64_t{1} << 28;
constexpr size_t most_names = 40;  // beyond, they would be written over each other

// gnuplot's strings in single quotes: a quote is doubled; a line break would end the command.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? std::string("''") : c == '\n' || c == '\r' ? std::string(" ") : std::string(1, c);
  }
  return result + "'";
}

std::string tics(const std::vector<std::string>& names) {
  if (names.size() > most_names) return "autofreq";
  std::string result = "(";
  for (size_t i = 0; i < names.size(); ++i) {
    result += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted(names[i]), i);
  }
  return result + ")";
}

}  // namespace

std::string heat_map(const at::Tensor& matrix, const std::vector<std::string>& names,
                     const std::string& title) {
  const TemporaryFolder folder("bilevel-heat-map");
  const at::Tensor values = matrix.detach().cpu().to(at::kDouble).contiguous();
  const int64_t size = values.size(0);
  write_file(folder.at("matrix"), [&](std::ostream& to) {
    const double* value = values.data_ptr<double>();
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) to << fmt::format("{:.9g} ", value[i * size + j]);
      to << '\n';
    }
  });
  // noenhanced: names may hold underscores and ampersands.
  write_file(folder.at("script"),
             fmt::format("set terminal svg size 640,600 noenhanced font 'sans,13' background rgb 'white'\n"
                         "set output 'picture'\nset title {}\nset size ratio 1\nunset key\n"
                         "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset cbrange [0:*]\n"
                         "set xtics rotate by 45 right {}\nset ytics {}\nset tics out nomirror\n"
                         "set palette defined (0 '#ffffff', 0.5 '#6baed6', 1 '#08306b')\n"
                         "plot 'matrix' matrix with image pixels\n",
                         quoted(title), static_cast<double>(size) - 0.5, static_cast<double>(size) - 0.5,
                         tics(names), tics(names)));
  const ProcessResult result = run_process({"gnuplot", "script"}, folder.path());
  if (!result.found) return {};
  if (!result.succeeded()) {
    throw std::runtime_error(fmt::format("gnuplot ended with status {}: {}", result.status,
                                         result.output_tail.empty() ? "no message" : result.output_tail));
  }
  return read_file(folder.at("picture"), largest_heat_map);
}

}  // namespace bilevel
