#include "bilevel/report/study_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bilevel/fields/option_text.h"
#include "bilevel/report/html.h"

namespace bilevel {
namespace {

const char* const no_value = "\u2013";

// Digits after the point: two of the spread, as papers have them.
int digits_of(const StudyNumber& number, const Statistic& s) {
  if (number.percent) return 2;
  if (s.low == s.high && s.low == std::round(s.low)) return 0;  // a count that does not change
  const double size = s.count > 1 && s.deviation > 0 ? s.deviation : std::abs(s.mean) / 100;
  if (!(size > 0)) return 0;
  return std::clamp(1 - static_cast<int>(std::floor(std::log10(size))), 0, 12);
}

// The number of columns' values that are fewer than the row's runs is said in the cell.
std::string cell(const StudyNumber& number, const Statistic& s, size_t runs, const std::string& sign) {
  if (s.count == 0) return no_value;
  std::string text = mean_and_spread(number, s, sign);
  if (static_cast<size_t>(s.count) != runs) text += fmt::format(" (n = {})", s.count);
  return text;
}

std::string option_title(const std::string& option) { return flag_of(option).substr(2); }

std::vector<std::string> heads(const Study& study) {
  std::vector<std::string> head;
  for (const std::string& option : study.options) head.push_back(option_title(option));
  if (head.empty()) head.emplace_back("runs");
  head.emplace_back("n");
  for (const StudyNumber& number : study.numbers) {
    head.push_back(number.percent   ? number.title + ", %"
                   : number.seconds ? number.title + ", s"
                                    : number.title);
  }
  return head;
}

std::vector<std::string> cells(const Study& study, const StudyGroup& group, const std::string& sign) {
  std::vector<std::string> row = group.values;
  for (std::string& value : row) {
    if (value.empty()) value = no_value;
  }
  if (row.empty()) row.push_back(group.label);
  row.push_back(std::to_string(group.runs.size()));
  for (size_t i = 0; i < study.numbers.size(); ++i) {
    row.push_back(cell(study.numbers[i], group.numbers[i], group.runs.size(), sign));
  }
  return row;
}

// Letters, not bytes: what UTF-8 writes in several is one wide.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string for_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string for_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string for_latex(const std::string& text) {
  if (text == no_value) return "--";
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\textbackslash{}";
        break;
      case '~':
        out += "\\textasciitilde{}";
        break;
      case '^':
        out += "\\textasciicircum{}";
        break;
      case '|':
        out += "\\textbar{}";
        break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        out += '\\';
        out += c;
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string pasteable(const std::string& title, const std::string& text) {
  return html::details(title,
                       fmt::format("<pre class=\"scroll\" tabindex=\"0\">{}</pre>\n", html::escaped(text)));
}

// Whichever there are fewer of, configurations or numbers, are the columns: a phone is narrow.
std::string table_html(const Study& study) {
  html::Table table{.head = {}, .rows = {}, .caption = {}, .numbers = true};
  const std::vector<std::string> titles = heads(study);
  const size_t words = std::max<size_t>(1, study.options.size());
  const bool upright = study.groups.size() > study.numbers.size();
  if (upright) {
    for (const std::string& text : titles) table.head.push_back(html::escaped(text));
  } else {
    table.head.emplace_back("number");
    for (size_t i = words; i < titles.size(); ++i) table.rows.push_back({html::escaped(titles[i])});
  }
  for (const StudyGroup& group : study.groups) {
    const std::vector<std::string> texts = cells(study, group, " \u00b1 ");
    if (upright) {
      table.rows.emplace_back();
      for (const std::string& text : texts) table.rows.back().push_back(html::escaped(text));
    } else {
      table.head.push_back(html::escaped(group.label));
      for (size_t i = words; i < texts.size(); ++i) table.rows[i - words].push_back(html::escaped(texts[i]));
    }
  }
  return html::table(table);
}

std::string options_text(const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& option : options) {
    text += fmt::format("{}<code>{}</code>", text.empty() ? "" : ", ", html::escaped(shown_option(option)));
  }
  return text;
}

}  // namespace

std::string mean_and_spread(const StudyNumber& number, const Statistic& s, const std::string& sign) {
  const double size = std::max(std::abs(s.mean), s.deviation);
  if (!number.percent && (size >= 1e7 || (size > 0 && size < 1e-4))) {
    return s.count > 1 ? fmt::format("{:.3g}{}{:.2g}", s.mean, sign, s.deviation)
                       : fmt::format("{:.4g}", s.mean);
  }
  const int digits = digits_of(number, s);
  return s.count > 1 ? fmt::format("{:.{}f}{}{:.{}f}", s.mean, digits, sign, s.deviation, digits)
                     : fmt::format("{:.{}f}", s.mean, digits);
}

std::string study_markdown(const Study& study) {
  std::vector<std::vector<std::string>> rows{heads(study)};
  for (const StudyGroup& group : study.groups) rows.push_back(cells(study, group, " \u00b1 "));
  std::vector<size_t> widths(rows.front().size(), 3);
  for (auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = for_markdown(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  const size_t words = std::max<size_t>(1, study.options.size());  // the columns after these are numbers
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string room(widths[i] - width_of(rows[r][i]), ' ');
      out += i < words ? fmt::format("| {}{} ", rows[r][i], room) : fmt::format("| {}{} ", room, rows[r][i]);
    }
    out += "|\n";
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      out += i < words ? fmt::format("|{}", std::string(widths[i] + 2, '-'))
                       : fmt::format("|{}:", std::string(widths[i] + 1, '-'));
    }
    out += "|\n";
  }
  return out;
}

std::string study_csv(const Study& study) {
  std::vector<std::string> head;
  for (const std::string& option : study.options) head.push_back(option_title(option));
  for (const char* name : {"n", "seeds"}) head.emplace_back(name);
  for (const StudyNumber& number : study.numbers) {
    for (const char* part : {"mean", "std", "n"}) head.push_back(fmt::format("{}_{}", number.name, part));
  }
  const auto line = [](std::vector<std::string> fields) {
    for (std::string& field : fields) field = for_csv(field);
    return fmt::format("{}\n", fmt::join(fields, ","));
  };
  std::string out = line(head);
  for (const StudyGroup& group : study.groups) {
    std::vector<std::string> row = group.values;
    row.push_back(std::to_string(group.runs.size()));
    row.push_back(fmt::format("{}", fmt::join(group.seeds, " ")));
    for (const Statistic& s : group.numbers) {
      row.push_back(s.count > 0 ? fmt::format("{:.10g}", s.mean) : "");
      row.push_back(s.count > 1 ? fmt::format("{:.10g}", s.deviation) : "");
      row.push_back(std::to_string(s.count));
    }
    out += line(row);
  }
  return out;
}

std::string study_latex(const Study& study) {
  const std::vector<std::string> head = heads(study);
  const size_t words = std::max<size_t>(1, study.options.size());
  std::string out = fmt::format(
      "% Mean and standard deviation of the sample over n seeds. Needs \\usepackage{{booktabs}}.\n"
      "\\begin{{tabular}}{{{}{}}}\n\\toprule\n",
      std::string(words, 'l'), std::string(head.size() - words, 'r'));
  const auto line = [&](const std::vector<std::string>& fields) {
    out += fmt::format("{} \\\\\n", fmt::join(fields, " & "));
  };
  std::vector<std::string> fields;
  for (const std::string& text : head) fields.push_back(for_latex(text));
  fields[words] = "$n$";
  line(fields);
  out += "\\midrule\n";
  for (const StudyGroup& group : study.groups) {
    fields = cells(study, group, "\x01");
    for (std::string& field : fields) {
      // The sign is put in after the escapes, which it must not meet.
      const size_t sign = field.find('\x01');
      field = sign == std::string::npos ? for_latex(field)
                                        : fmt::format("{} $\\pm$ {}", for_latex(field.substr(0, sign)),
                                                      for_latex(field.substr(sign + 1)));
    }
    line(fields);
  }
  return out + "\\bottomrule\n\\end{tabular}\n";
}

Json study_json(const Study& study) {
  Json out = {{"by", study.options},
              {"differs_along", study.going_along},
              {"ignored", study.ignored},
              {"groups", Json::array()},
              {"notes", study.notes}};
  for (const StudyGroup& group : study.groups) {
    Json options = Json::object(), numbers = Json::object(), names = Json::array();
    for (size_t i = 0; i < study.options.size(); ++i) options[study.options[i]] = group.values[i];
    for (const size_t run : group.runs) names.push_back(study.run_names[run]);
    for (size_t i = 0; i < study.numbers.size(); ++i) {
      const Statistic& s = group.numbers[i];
      if (s.count == 0) continue;
      numbers[study.numbers[i].name] = {{"mean", s.mean},
                                        {"std", s.count > 1 ? Json(s.deviation) : Json(nullptr)},
                                        {"n", s.count},
                                        {"min", s.low},
                                        {"max", s.high}};
    }
    out["groups"].push_back(Json{{"options", options},
                                 {"n", group.runs.size()},
                                 {"seeds", group.seeds},
                                 {"runs", names},
                                 {"numbers", numbers}});
  }
  return out;
}

std::string study_html(const Study& study) {
  std::string out;
  for (const std::string& text : study.notes) out += html::note(text);
  if (study.groups.empty())
    return out + html::note("No run has finished: there is nothing to take means of.");
  out += fmt::format("<p>{}</p>\n",
                     study.repeated()
                         ? "Mean \u00b1 standard deviation of the sample over n runs with different seeds."
                         : "One run of each configuration: without further seeds there is no spread.");
  out += table_html(study);
  std::string remark;
  if (!study.going_along.empty()) {
    remark += fmt::format("These options differ, too: {}. ", options_text(study.going_along));
  }
  if (!study.ignored.empty()) {
    remark += fmt::format("Differ too, and make no configuration: {}.", options_text(study.ignored));
  }
  if (!remark.empty()) out += fmt::format("<p class=\"remark\">{}</p>\n", remark);
  const auto title = [&](size_t i, const char* form) {
    return i < study.files.size() ? fmt::format("As {}: {}", form, study.files[i])
                                  : fmt::format("As {}", form);
  };
  return out + pasteable(title(0, "CSV"), study_csv(study)) +
         pasteable(title(1, "Markdown"), study_markdown(study)) +
         pasteable(title(2, "LaTeX"), study_latex(study));
}

}  // namespace bilevel
