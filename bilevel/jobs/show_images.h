#pragma once
// The job `data show`: reads images of any form and says what they are.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/image_data.h"
#include "bilevel/fields/fields.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct ShowImagesOptions {
  ShowImagesOptions() { images.data.clear(); }  // nothing is shown that was not named
  ImageDataOptions images = {};
  Given given = {};
  static const Fields<ShowImagesOptions>& fields();
};

struct ShowImagesResult {
  std::string name = {};
  ImageData data = {};
  std::vector<int64_t> train = {}, test = {};  // images of each class
  Json json = {};
};
ShowImagesResult run_show_images(ShowImagesOptions options, RunContext& context);

}  // namespace bilevel
