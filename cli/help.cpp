#include "cli/help.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace bilevel::cli {

std::string TieredHelp::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  all_ = mode == CLI::AppFormatMode::All;
  return CLI::Formatter::make_help(app, std::move(name), CLI::AppFormatMode::Normal);
}

std::string TieredHelp::make_group(std::string group, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  if (!all_) std::erase_if(options, [&](const CLI::Option* option) { return hidden_.contains(option); });
  return options.empty() ? "" : CLI::Formatter::make_group(std::move(group), is_positional, options);
}

// A heading and its options.
std::string TieredHelp::make_expanded(const CLI::App* group) const {
  std::string text;
  for (const CLI::Option* option : group->get_options()) {
    const bool is_help = option == group->get_help_ptr() || option == group->get_help_all_ptr();
    const bool shows = !is_help && (all_ || !hidden_.contains(option));
    if (shows) text += make_option(option, false);
  }
  return text.empty() ? "" : fmt::format("\n{}:\n{}", group->get_group(), text);
}

std::string TieredHelp::make_footer(const CLI::App* app) const {
  std::string footer = CLI::Formatter::make_footer(app);
  if (all_ || hidden_.empty()) return footer;
  return fmt::format("\n{} more options: bilevel {} --help-all\n{}", hidden_.size(), app->get_name(), footer);
}

std::shared_ptr<TieredHelp> add_help_flags(CLI::App& command) {
  auto help = std::make_shared<TieredHelp>();
  help->column_width(30);
  command.formatter(help);
  command.set_help_flag("-h,--help", "the options that people use first");
  command.set_help_all_flag("--help-all", "all options");
  return help;
}

}  // namespace bilevel::cli
