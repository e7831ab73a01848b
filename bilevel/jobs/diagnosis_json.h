#pragma once
// A diagnosis as JSON.

#include <string>
#include <vector>

#include "bilevel/check/diagnose.h"
#include "bilevel/nas/search_diagnosis.h"
#include "bilevel/run/json.h"

namespace bilevel {

// `commands` are the lines to type.
Json diagnosis_json(const Diagnosis& diagnosis, const std::vector<std::string>& commands);
Json search_diagnosis_json(const nas::SearchDiagnosis& diagnosis);

}  // namespace bilevel
