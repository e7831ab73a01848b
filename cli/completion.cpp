// `bilevel completion`: a script for a shell.

#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <vector>

#include "bilevel/run/json.h"
#include "cli/commands.h"
#include "cli/completed_words.h"
#include "cli/job_command.h"

namespace bilevel::cli {
namespace {

using Words = std::vector<std::string>;

// `data`, `data get` and `data show` as well.
std::vector<const CLI::App*> all_commands(const CLI::App& app) {
  std::vector<const CLI::App*> all;
  for (const CLI::App* command : commands_of(app)) {
    all.push_back(command);
    const std::vector<const CLI::App*> below = all_commands(*command);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

Words names_of(const std::vector<const CLI::App*>& commands) {
  Words names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

// ---- bash ----

// Words are split at spaces alone, because readline also splits them at = and :, which stand in our words.
constexpr const char* bash_head = R"(# bash completion for bilevel, written by `bilevel completion bash`

_bilevel() {
  local line=${COMP_LINE:0:COMP_POINT} current previous command before= flags= offered= kind= part
  local operands= operand_kind=files
  local -a words
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  local count=${#words[@]}
  current=${words[count - 1]} previous=${words[count - 2]} command=${words[1]}
  COMPREPLY=()
  if ((count == 2)) || { ((count == 3)) && [[ $command == help ]]; }; then
    command=
  elif ((count > 3)) && [[ $command == data && ${words[2]} == @(get|show) ]]; then
    command+=" ${words[2]}"
  fi
  if [[ $current == --*=* ]]; then
    previous=${current%%=*} before=${current%%=*}= current=${current#*=}
  fi
  case $command in
)";
constexpr const char* bash_tail = R"(  esac
  if [[ -z $kind ]]; then
    if [[ $current == -* ]]; then offered=$flags kind=words; else offered=$operands kind=$operand_kind; fi
  fi
  part=$current
  if [[ $kind == list ]]; then
    part=${current##*,}
    before+=${current%"$part"}
  fi
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$offered" -- "$part")
  if [[ $kind == *files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -P "$before" -f -- "$current")
  fi
  # Readline replaces only what stands behind the last = or :.
  part=$before$current
  if [[ $part == *[=:]* && $COMP_WORDBREAKS == *[=:]* ]]; then
    part=${part%"${part##*[=:]}"}
    COMPREPLY=("${COMPREPLY[@]#"$part"}")
  fi
}
complete -F _bilevel bilevel
)";

std::string bash_kind(const CompletedWords& words) {
  if (words.words.empty()) return words.files ? "files" : "none";
  if (words.by_comma) return "list";
  return words.files ? "words-or-files" : "words";
}

std::string bash_case(const CLI::App& command) {
  Words flags = {"--help", "--help-all"}, operands = names_of(commands_of(command));
  std::string operand_kind = "words";
  std::map<std::string, Words> by_values;  // flags that are followed by the same
  for (const OptionRow& row : option_rows(command)) {
    const CompletedWords words = words_behind(command, row);
    if (row.is_positional) {
      operands.insert(operands.end(), words.words.begin(), words.words.end());
      operand_kind = bash_kind(words);
      continue;
    }
    flags.push_back(row.flag);
    if (!row.turned_off.empty()) flags.push_back(row.turned_off);
    if (row.is_flag()) continue;
    by_values[fmt::format("kind={} offered='{}'", bash_kind(words), fmt::join(words.words, " "))].push_back(
        row.flag);
  }
  std::string text =
      fmt::format("    '{}')\n      flags='{}'\n      operands='{}' operand_kind={}\n", full_name(command),
                  fmt::join(flags, " "), fmt::join(operands, " "), operand_kind);
  if (!by_values.empty()) text += "      case $previous in\n";
  for (const auto& [values, of] : by_values) {
    text += fmt::format("        {}) {} ;;\n", fmt::join(of, " | "), values);
  }
  if (!by_values.empty()) text += "      esac\n";
  return text + "      ;;\n";
}

}  // namespace

std::string bash_completion(const CLI::App& program) {
  std::string text = bash_head;
  text += fmt::format(
      "    '')\n      flags='--help --version'\n      operands='{} help' operand_kind=words\n      ;;\n",
      fmt::join(names_of(commands_of(program)), " "));
  for (const CLI::App* command : all_commands(program)) text += bash_case(*command);
  return text + bash_tail;
}

// ---- zsh ----

namespace {

// Inside single quotes, where `special` means something to _arguments and is kept from it.
std::string zsh_text(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (special.find(c) != std::string::npos || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// The first clause.
std::string brief(const std::string& help) { return help.substr(0, help.find(';')); }

Words zsh_words(const Words& words) {
  Words out;
  for (const std::string& word : words) out.push_back(zsh_text(word, ":"));
  return out;
}

std::string zsh_action(const CompletedWords& words) {
  const std::string joined = fmt::format("{}", fmt::join(zsh_words(words.words), " "));
  if (words.words.empty()) return words.files ? "_files" : " ";
  if (words.by_comma) return fmt::format("_sequence compadd - {}", joined);
  if (words.files) return fmt::format("{{ compadd - {}; _files }}", joined);
  return fmt::format("({})", joined);
}

std::string zsh_specification(const CLI::App& command, const OptionRow& row) {
  const std::string action = zsh_action(words_behind(command, row));
  const std::string value = zsh_text(row.field.name, ":");
  if (row.is_positional) return fmt::format("'{}:{}:{}'", row.field.is_list ? "*" : "", value, action);
  const std::string about = zsh_text(brief(row.help), "[]:");
  if (!row.is_flag()) return fmt::format("'{}=[{}]:{}:{}'", row.flag, about, value, action);
  std::string text = fmt::format("'{}[{}]'", row.flag, about);
  if (!row.turned_off.empty()) text += fmt::format(" '{}[not\\: {}]'", row.turned_off, about);
  return text;
}

std::string zsh_case(const CLI::App& command) {
  std::string text = fmt::format("    '{}')\n      _arguments", full_name(command));
  for (const OptionRow& row : option_rows(command)) {
    text += " \\\n        " + zsh_specification(command, row);
  }
  if (const Words below = names_of(commands_of(command)); !below.empty()) {
    text += fmt::format(" \\\n        '1:command:({})'", fmt::join(below, " "));
  }
  return text + " \\\n        '--help[the most used options]' '--help-all[all options]'\n      ;;\n";
}

}  // namespace

std::string zsh_completion(const CLI::App& program) {
  std::string text =
      "#compdef bilevel\n# zsh completion for bilevel, written by `bilevel completion zsh`\n\n_bilevel() {\n"
      "  local -a commands\n  commands=(\n";
  for (const CLI::App* command : commands_of(program)) {
    text += fmt::format("    '{}:{}'\n", command->get_name(), zsh_text(command->get_description(), ":"));
  }
  text +=
      "  )\n"
      "  if ((CURRENT == 2)) || [[ $words[2] == help && $CURRENT == 3 ]]; then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  if [[ $command == data && $words[2] == (get|show) && $CURRENT -gt 2 ]]; then\n"
      "    command+=\" $words[2]\"\n"
      "    shift words\n"
      "    ((CURRENT--))\n"
      "  fi\n"
      "  case $command in\n";
  for (const CLI::App* command : all_commands(program)) text += zsh_case(*command);
  return text + "  esac\n}\n\n_bilevel \"$@\"\n";
}

// ---- the command ----

namespace {

struct CompletionOptions {
  std::string shell = {};
  Given given = {};
  static const Fields<CompletionOptions>& fields() {
    static const Fields<CompletionOptions> table = [] {
      Fields<CompletionOptions> f;
      f.add(
           "shell", [](auto& o) -> auto& { return o.shell; }, "shell to print the script for")
          .one_of({"bash", "zsh"})
          .required()
          .first();
      return f;
    }();
    return table;
  }
};

struct Script {
  std::string text = {};
  Json json = {};
};

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  add_question<CompletionOptions>(
      app, exit_code,
      {"completion",
       "Print a script that lets a shell complete commands, options and names",
       "`cmake --install` and the Debian package put it where the shells look for it.\n"
       "Examples:\n"
       "  bilevel completion bash      # source <(bilevel completion bash) in ~/.bashrc\n"
       "  bilevel completion zsh       # into a file _bilevel in a folder of fpath",
       {"shell"}},
      [&app](const CompletionOptions& options, RunContext& /*context*/) {
        Script script;
        script.text = options.shell == "bash" ? bash_completion(app) : zsh_completion(app);
        script.json = {{"shell", options.shell}, {"script", script.text}};
        return script;
      },
      [](const Script& script) { fmt::print("{}", script.text); });
}

}  // namespace bilevel::cli
