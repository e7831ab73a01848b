#include "bilevel/report/html.h"

#include <fmt/format.h>

#include <cmath>

namespace bilevel::html {
namespace {

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(std::llabs(value));
  std::string out = value < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // The other control characters are no part of HTML.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string data_address(std::string_view type, std::string_view bytes) {
  static constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = fmt::format("data:{};base64,", type);
  out.reserve(out.size() + (bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t k) -> uint32_t {
      return k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0U;
    };
    const uint32_t three = byte(i) << 16U | byte(i + 1) << 8U | byte(i + 2);
    out += letters[three >> 18U & 63U];
    out += letters[three >> 12U & 63U];
    out += i + 1 < bytes.size() ? letters[three >> 6U & 63U] : '=';
    out += i + 2 < bytes.size() ? letters[three & 63U] : '=';
  }
  return out;
}

std::string image(std::string_view type, std::string_view bytes, std::string_view description) {
  return fmt::format("<img src=\"{}\" alt=\"{}\">", data_address(type, bytes), escaped(description));
}

std::string table(const Table& t) {
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\"><table{}>", t.numbers ? " class=\"numbers\"" : "");
  if (!t.caption.empty()) out += fmt::format("<caption>{}</caption>", t.caption);
  if (!t.head.empty()) {
    out += "<thead><tr>";
    for (const std::string& cell : t.head) out += fmt::format("<th scope=\"col\">{}</th>", cell);
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const auto& row : t.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? fmt::format("<th scope=\"row\">{}</th>", row[i]) : fmt::format("<td>{}</td>", row[i]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string note(std::string_view text) { return fmt::format("<p class=\"note\">{}</p>\n", escaped(text)); }

std::string details(std::string_view summary, const std::string& content) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escaped(summary), content);
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "\u2013";
  if (value == std::round(value) && std::abs(value) < 1e15) return grouped(static_cast<int64_t>(value));
  if (std::abs(value) >= 1e5)
    return std::abs(value) < 1e15 ? grouped(std::llround(value)) : fmt::format("{:.3e}", value);
  return fmt::format("{:.4g}", value);
}

std::string percent_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f} %", value) : "\u2013";
}

std::string time_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "\u2013";
  if (seconds < 1) return fmt::format("{:.2g} s", seconds);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", grouped(whole / 3600), whole % 3600 / 60);
}

}  // namespace bilevel::html
