#pragma once
// Label noise for hyper-cleaning. It is drawn once, when the set is made, and stored: public code that
// corrupts them at every visit of a batch trains on other labels each time (docs/mathematics.md, mistake 4).

#include <cstdint>
#include <map>
#include <string>

#include "bilevel/core/random.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// "Corrupted" means replaced by a uniformly random class, so one replacement in `classes` changes nothing:
// the two truths that a detector of bad labels can be scored against differ.
struct NoisyLabels {
  Tensor labels;    // int64, CPU
  Tensor replaced;  // bool: drawn anew
  Tensor wrong;     // bool: differs from the clean label
};

// Leaves `clean` (int64, CPU) untouched. Each label is replaced with the given probability, independently.
NoisyLabels replace_labels(const Tensor& clean, int64_t classes, double probability, Random& random);

// The threshold of K-RMD, section 4.2.1: an example whose x_i is below it is flagged; sigmoid(-3) = 0.047.
constexpr double flag_below = -3;

// f1_replaced and f1_wrong of flagging x_i < flag_below, added to `metrics` where the truth is known.
void add_flag_scores(const Tensor& x, const Tensor& replaced, const Tensor& wrong,
                     std::map<std::string, double>& metrics);

// Harmonic mean of precision and recall of the flagged examples; 0 where nothing is both flagged and true.
double f1_score(const Tensor& flagged, const Tensor& truth);

}  // namespace bilevel
