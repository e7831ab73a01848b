#pragma once
// An option that would be ignored is an error: its user expects it to have an effect.

#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"

namespace bilevel {

// What one of several methods, learners or the like reads, of the fields that not all of them read.
struct ChoiceReads {
  std::string name;
  std::vector<std::string> reads = {};
};
// `field` is what was chosen by, such as "method". Throws OptionError where a field was given that only
// others than `chosen` read.
void refuse_unread(const OptionsView& options, const std::string& field, const std::string& chosen,
                   const std::vector<ChoiceReads>& choices);

}  // namespace bilevel
