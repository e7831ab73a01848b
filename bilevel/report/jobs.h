#pragma once
// A run's page as its job tells it.

#include "bilevel/report/report.h"

namespace bilevel {

// What the job of this run adds to its page, and the numbers that it ended with.
JobReport job_report(const RunData& run);

}  // namespace bilevel
