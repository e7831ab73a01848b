#pragma once
// What a diagnosis recommends, as options of jobs and as JSON.

#include "bilevel/check/diagnose.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/run/json.h"

namespace bilevel {

// Of check, and of the jobs that run an algorithm: the field of a series' rate has another name there. No
// inner rate where x has one.
NamedWords recommended_check_options(const Diagnosis& diagnosis, bool rate_is_learned);
NamedWords recommended_algorithm_options(const Diagnosis& diagnosis, bool rate_is_learned);

Json recommendation_json(const Recommendation& recommendation);

}  // namespace bilevel
