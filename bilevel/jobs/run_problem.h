#pragma once
// The problem of a run that is there already, made again from its options, to look at it where its
// checkpoint is. The jobs that have such problems have a function each.

#include <cstdint>
#include <memory>

#include "bilevel/check/diagnose.h"
#include "bilevel/core/inner.h"

namespace bilevel {

struct RunProblem {
  std::shared_ptr<const void> owner = {};  // of what `facts` points to
  DiagnosedProblem facts = {};
  InnerOptions inner = {};  // the run's rate, where it has its own reasons for one
  bool rate_is_given = false;
  uint64_t seed = 0;
};

}  // namespace bilevel
