#pragma once
// The labels of examples that are read from files: of a file of their own, or from beside the features.

#include <string>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"

namespace bilevel {

// To examples whose features are read. `first`: what was read before them, whose names of classes hold.
void add_labels(const LabelledFile& file, bool any_number, const LabelledFeatures* first,
                LabelledFeatures& examples);

std::string array_text(const Tensor& array);  // "float of shape (3, 4)", for messages

}  // namespace bilevel
