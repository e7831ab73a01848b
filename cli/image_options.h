#pragma once
// The options that select images, and the report on the images held out for testing; shared by the commands
// that search and train networks.

#include <CLI/CLI.hpp>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "cli/json.h"

namespace bilevel::cli {

void add_image_options(CLI::App& command, ImageDataOptions& data, AugmentOptions& augment);

// Which images were held out for tests, so that two runs can be seen to have held out the same: how many, and
// a digest of where they stood. Null where a test set was given.
Json held_out_json(const ImageData& data);

}  // namespace bilevel::cli
