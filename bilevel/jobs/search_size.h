#pragma once
// The size of a search as one choice. The published one is for a GPU; the small one keeps what decides which
// operations win, the depth, the batches and the rates, and has a quarter of the channels, smaller images and
// fewer epochs.

#include <string>
#include <vector>

#include "bilevel/jobs/search.h"

namespace bilevel {

std::vector<std::string> search_sizes();
// Options that were not given get the value of `size`. The first is about images and network, before the
// images are read; the second about the search, whose other defaults are already those of space and method.
void take_size_of_images(SearchJobOptions& options);
void take_size_of_search(SearchJobOptions& options);
// Advice for a search of the published size on a CPU, which takes many hours; else empty.
std::string size_hint(const SearchJobOptions& options, const ImageData& images, int64_t training_images);

}  // namespace bilevel
