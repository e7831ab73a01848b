#pragma once
// Help in two tiers: --help has the options that people use first, --help-all has all of them.

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>

namespace bilevel::cli {

class TieredHelp : public CLI::Formatter {
 public:
  // This one is for --help-all only.
  void hide(const CLI::Option* option) { hidden_.insert(option); }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_expanded(const CLI::App* group) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::set<const CLI::Option*> hidden_;
  mutable bool all_ = false;
};

// Gives the command both flags, and the formatter that tells them apart.
std::shared_ptr<TieredHelp> add_help_flags(CLI::App& command);

}  // namespace bilevel::cli
