#pragma once
// Why an estimator is right or wrong on a problem, in a sentence: from its status, the spectrum and the inner
// loop.

#include <string>
#include <vector>

#include "bilevel/check/check.h"

namespace bilevel {

// Fills `trusted` and `why` of every row, and the result's verdict.
void judge(CheckResult& result);

// What a trusted row is right for: "solution" of the inner problem (or "iterate", where the implicit formula
// is taken at the final one), the "steps" that were taken, or both. An estimator can be right for the steps
// and far from the solution.
std::vector<std::string> trusted_for(const MethodRow& row, const CheckResult& result);

}  // namespace bilevel
