#pragma once
// A NotFiniteError whose message names options that help.

#include <string>

#include "bilevel/core/errors.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {

class NotFiniteRun : public NotFiniteError, public WithMarkedMessage {
 public:
  explicit NotFiniteRun(const std::string& marked)
      : NotFiniteError(plain_text(marked)), WithMarkedMessage(marked) {}
};

}  // namespace bilevel
