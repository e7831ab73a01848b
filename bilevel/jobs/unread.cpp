#include "bilevel/jobs/unread.h"

#include <algorithm>

#include "bilevel/fields/option_text.h"

namespace bilevel {

void refuse_unread(const OptionsView& options, const std::string& field, const std::string& chosen,
                   const std::vector<ChoiceReads>& choices) {
  for (const Field& given : options.fields()) {
    if (!options.is_given(given)) continue;
    std::vector<std::string> readers;
    for (const ChoiceReads& choice : choices) {
      if (std::find(choice.reads.begin(), choice.reads.end(), given.name) != choice.reads.end()) {
        readers.push_back(choice.name);
      }
    }
    if (readers.empty() || std::find(readers.begin(), readers.end(), chosen) != readers.end()) continue;
    throw OptionError(
        no_effect(named(given.name, options.words(given).front()), named(field, chosen), readers));
  }
}

}  // namespace bilevel
