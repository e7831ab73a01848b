#pragma once
// The options that select images, and the report on the images held out for testing; shared by the commands
// that search and train networks.

#include <CLI/CLI.hpp>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "bilevel/jobs/image_choice.h"

namespace bilevel::cli {

void add_image_options(CLI::App& command, ImageDataOptions& data, AugmentOptions& augment);

}  // namespace bilevel::cli
