// Searches a cell for images that lie in memory and prints it. With a folder in the RunContext the search
// would be kept there and could be resumed.

#include <ATen/ATen.h>
#include <bilevel/jobs/search.h>

#include <cstdio>
#include <string>

// Grey noise, brighter on the left half in one class and on the right half in the other.
bilevel::ImageData make_images(int64_t count) {
  bilevel::ImageData images;
  images.classes = 2;
  images.train.labels = at::arange(count) % 2;
  at::Tensor pixels = at::randint(0, 200, {count, 1, 8, 8});
  for (int64_t i = 0; i < count; ++i) pixels[i].narrow(2, i % 2 == 0 ? 0 : 4, 4).add_(40);
  images.train.images = pixels.to(at::kByte);
  bilevel::measure_channels(images.train.images, images.mean, images.std);
  return images;
}

int main() {
  at::manual_seed(0);
  bilevel::SearchJobOptions options;  // what is not set here is the space's and the method's default
  options.network.channels = 4;
  options.network.cells = 1;
  options.augment = {.crop_padding = 1, .flip = false};  // a flip would swap the classes
  options.search.method = "darts";
  options.search.epochs = 3;
  options.search.batch = 16;
  bilevel::RunContext context({},
                              {.line = [](const std::string& text) { std::printf("%s\n", text.c_str()); }});
  const bilevel::SearchJobResult found = bilevel::run_search_on(make_images(128), options, context);
  std::printf("%s\n%ld parameters\n", bilevel::nas::genotype_text(found.summary.genotype).c_str(),
              static_cast<long>(found.parameters));
}
