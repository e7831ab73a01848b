#include "bilevel/jobs/search_size.h"

#include <fmt/format.h>

#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

constexpr int64_t small_channels = 4, small_side = 16, small_padding = 2, small_epochs = 10;
// With more pixels than this in all training images, the published size takes many hours on a CPU.
constexpr int64_t many_pixels = 5'000'000;

bool is_small(const SearchJobOptions& o) { return o.size == "small"; }

}  // namespace

std::vector<std::string> search_sizes() { return {"published", "small"}; }

void take_size_of_images(SearchJobOptions& o) {
  if (!is_small(o)) return;
  if (!o.given(o.network.channels)) o.network.channels = small_channels;
  if (!o.given(o.data.image_size)) o.data.image_size = small_side;
  if (!o.given(o.augment.crop_padding)) o.augment.crop_padding = small_padding;
}

void take_size_of_search(SearchJobOptions& o) {
  if (!is_small(o)) return;
  // The epochs of method random are those of every cell's own training.
  if (!o.given(o.search.epochs) && o.search.method != "random") o.search.epochs = small_epochs;
  if (!o.given(o.search.eigenvalue_products) && o.search.stop != "eigenvalue")
    o.search.eigenvalue_products = 0;
}

std::string size_hint(const SearchJobOptions& o, const ImageData& images, int64_t training_images) {
  if (is_small(o) || o.compute.device != "cpu") return {};
  if (o.given(o.size) || o.given(o.network.channels) || o.given(o.network.cells)) return {};
  const int64_t pixels = images.train.images.size(2) * images.train.images.size(3);
  if (pixels * training_images < many_pixels) return {};
  return fmt::format("search: the published size is for a GPU and takes many hours here; {} takes minutes",
                     named("size", "small"));
}

}  // namespace bilevel
