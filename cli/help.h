#pragma once
// Help in two tiers: --help has the options that people use first, --help-all has all of them. And as tables
// of Markdown, which docs/options.md consists of.

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/fields/options_view.h"

namespace bilevel::cli {

class TieredHelp : public CLI::Formatter {
 public:
  // This one is for --help-all only.
  void hide(const CLI::Option* option) { hidden_.insert(option); }

  // What the command's flags come from.
  void hold(const OptionsView& options, const std::vector<std::string>& positional) {
    tables_.emplace_back(options, positional);
  }
  const std::vector<std::pair<OptionsView, std::vector<std::string>>>& tables() const { return tables_; }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_expanded(const CLI::App* group) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::vector<std::pair<OptionsView, std::vector<std::string>>> tables_;
  std::set<const CLI::Option*> hidden_;
  mutable bool all_ = false;
};

// All options of a command, or of all commands of the program.
std::string command_markdown(const CLI::App& command);
std::string program_markdown(const CLI::App& program);

// Gives the command both flags, and the formatter that tells them apart.
std::shared_ptr<TieredHelp> add_help_flags(CLI::App& command);

}  // namespace bilevel::cli
