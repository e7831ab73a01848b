#pragma once
// The look of a report: one accent, system fonts, light and dark, narrow windows and paper.

#include <string_view>

namespace bilevel {

extern const std::string_view report_style;

}  // namespace bilevel
