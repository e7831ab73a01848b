#pragma once
// Why an estimator is right or wrong on a problem, in a sentence: from its status, the spectrum and the inner
// loop.

#include "bilevel/check/check.h"

namespace bilevel {

// Fills `trusted` and `why` of every row, and the report's verdict.
void judge(CheckReport& report);

}  // namespace bilevel
