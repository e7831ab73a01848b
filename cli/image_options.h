#pragma once
// Options that say which images: shared by the commands that search and train networks.

#include <CLI/CLI.hpp>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"

namespace bilevel::cli {

void add_image_options(CLI::App& command, ImageDataOptions& data, AugmentOptions& augment);

}  // namespace bilevel::cli
