#pragma once
// Which images a job reads and how they are augmented: the part that the options of search, train and
// `data show` share.

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "bilevel/fields/fields.h"
#include "bilevel/run/json.h"

namespace bilevel {

const Fields<ImageDataOptions>& image_fields();
const Fields<AugmentOptions>& augment_fields();

// Images in memory with what readers of files see to: every image has a label and both sets have one size, or
// this throws OptionError; channels are measured and classes named where nobody did; and, for jobs that need
// one, a test set is held out.
ImageData completed(ImageData images, bool needs_test);

// Which images were held out for tests, so that two runs can be seen to have held out the same: how many, and
// a digest of where they stood. Null where a test set was given.
Json held_out_json(const ImageData& data);

}  // namespace bilevel
