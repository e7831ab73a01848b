#pragma once
// Fields that had another name in an earlier version. A run's config.json is read by today's names; whoever
// gives an old name is shown the new one.

#include <string>

#include "bilevel/fields/options_view.h"

namespace bilevel {

std::string current_field(const std::string& field);  // "mixed" -> "cross"; any other name as it is

// "; it is now called --cross", where the options have the field under its new name; else nothing.
std::string new_name_of(const std::string& field, const OptionsView& options);

}  // namespace bilevel
