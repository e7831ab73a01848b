#include "cli/man.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <vector>

#include "bilevel/data/write_file.h"
#include "cli/option_rows.h"

namespace bilevel::cli {
namespace {

// Text of ours as roff reads it. A hyphen would be printed as a dash that no shell understands; `words`
// become bold.
std::string roff(const std::string& text) {
  std::string out;
  bool bold = false;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '`') {
      bold = !bold;
      out += bold ? "\\fB" : "\\fR";
    } else {
      out += c;
    }
  }
  if (bold) out += "\\fR";
  const bool is_request = !out.empty() && (out[0] == '.' || out[0] == '\'');
  return is_request ? "\\&" + out : out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string head(const std::string& name, const std::string& summary) {
  return fmt::format(".TH {} 1 \"\" \"bilevel {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     upper(roff(name)), BILEVEL_VERSION, roff(name), roff(summary));
}

// The help's last paragraphs. Lines that are indented stay as they are; "Examples:" above them is a heading.
std::string sections(const std::string& footer) {
  std::vector<std::string> lines;
  std::istringstream text(footer);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::string out;
  bool verbatim = false, begun = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const bool indented = line.starts_with("  ");
    if (verbatim && !indented) out += ".fi\n.RE\n";
    if (!verbatim && indented) out += ".PP\n.RS 4\n.nf\n";
    verbatim = indented;
    const bool heads = line.ends_with(':') && i + 1 < lines.size() && lines[i + 1].starts_with("  ");
    if (heads && !indented) {
      out += fmt::format(".SH {}\n", upper(line.substr(0, line.size() - 1)));
      begun = true;
      continue;
    }
    if (!begun && !line.empty()) out += ".SH DESCRIPTION\n";
    begun = true;
    out += line.empty() ? ".PP\n" : roff(indented ? line.substr(2) : line) + "\n";
  }
  return verbatim ? out + ".fi\n.RE\n" : out;
}

std::string option_item(const OptionRow& row) {
  std::string item = fmt::format(".TP\n\\fB{}\\fR", roff(row.flag));
  if (!row.turned_off.empty()) item += fmt::format(", \\fB{}\\fR", roff(row.turned_off));
  if (!row.is_flag()) item += fmt::format(" ({})", roff(row.value));
  item += "\n" + roff(row.help);
  const bool says_default = !row.default_text.empty() && row.default_text != "off";
  if (row.default_text == "required") {
    item += "; required";
  } else if (says_default) {
    item += "; default: " + roff(row.default_text);
  }
  return item + "\n";
}

std::string options_of(const CLI::App& command) {
  std::string text, heading;
  for (const OptionRow& row : option_rows(command)) {
    if (row.heading != heading) {
      heading = row.heading;
      text += fmt::format(".SS {}\n", heading.empty() ? "besides" : roff(heading));
    }
    text += option_item(row);
  }
  return text;
}

std::string synopsis(const CLI::App& command) {
  std::string text = fmt::format("\\fBbilevel {}\\fR", roff(full_name(command)));
  for (const OptionRow& row : option_rows(command)) {
    if (row.is_positional) {
      text += fmt::format(" \\fI{}\\fR{}", roff(row.field.name), row.field.is_list ? " ..." : "");
    }
  }
  return text + " [\\fIoptions\\fR]\n";
}

std::string with_below(const CLI::App& command) {
  std::string text;
  for (const CLI::App* below : commands_of(command)) {
    text += fmt::format(".SH {}\n{}.\n.PP\n{}{}", upper(roff("bilevel " + full_name(*below))),
                        roff(below->get_description()), synopsis(*below), options_of(*below));
  }
  return text;
}

}  // namespace

std::string command_man(const CLI::App& command) {
  return head("bilevel-" + command.get_name(), command.get_description()) + ".SH SYNOPSIS\n" +
         synopsis(command) + sections(command.get_footer()) + ".SH OPTIONS\n" + options_of(command) +
         with_below(command) + ".SH \"SEE ALSO\"\n\\fBbilevel\\fR(1)\n";
}

std::string program_man(const CLI::App& program) {
  std::string text = head("bilevel", "gradient-based bilevel optimisation");
  text += ".SH SYNOPSIS\n\\fBbilevel\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n";
  text += fmt::format(".SH DESCRIPTION\n{}.\n", roff(program.get_description()));
  text += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format(".TP\n\\fBbilevel\\-{}\\fR(1)\n{}.\n", roff(command->get_name()),
                        roff(command->get_description()));
  }
  text +=
      ".SH OPTIONS\n"
      ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nhelp for the program or, after a command, for that command\n"
      ".TP\n\\fB\\-\\-help\\-all\\fR\nall options of a command\n"
      ".TP\n\\fB\\-\\-version\\fR\nversions of the program, LibTorch and BLAS\n"
      ".SH \"EXIT STATUS\"\n"
      ".TP\n0\nsuccess\n"
      ".TP\n1\na file, the memory or the machine failed\n"
      ".TP\n2\na mistake in an option or in the data\n"
      ".TP\n3\na number was not finite, or a solve failed\n"
      ".TP\n130\ninterrupted, with the state saved\n";
  return text;
}

void write_man_pages(const CLI::App& program, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_file(folder + "/bilevel.1", program_man(program));
  for (const CLI::App* command : commands_of(program)) {
    write_file(fmt::format("{}/bilevel-{}.1", folder, command->get_name()), command_man(*command));
  }
}

}  // namespace bilevel::cli
