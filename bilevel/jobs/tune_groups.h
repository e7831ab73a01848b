#pragma once
// Which features share a regulariser: `groups` of the job `tune`.

#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct FeatureGroups {
  Tensor of_column;                // int64, numbered as the groups first appear
  std::vector<std::string> names;  // one per feature
};
// `rule`: "prefix", or a file with the name of a group for each feature, one a line. Throws
// std::runtime_error for a file of another number of names, OptionError where a rule finds no two features
// alike.
FeatureGroups feature_groups(const std::string& rule, const std::vector<std::string>& features);

}  // namespace bilevel
