#include "cli/image_options.h"

namespace bilevel::cli {

void add_image_options(CLI::App& command, ImageDataOptions& data, AugmentOptions& augment) {
  auto* images = command.add_option_group("images");
  images
      ->add_option("--data", data.data,
                   "cifar10, cifar100, mnist, fashion-mnist; a folder with a folder of PNG files for each "
                   "class; or an "
                   "IDX file of images")
      ->capture_default_str();
  images
      ->add_option("--data-dir", data.folder,
                   "folder of sets known by name: fetched, or unpacked as they come")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  images->add_option("--labels", data.labels, "IDX file of labels, for an IDX file of images");
  images->add_option("--test-images", data.test_images,
                     "IDX file of test images; left out: a fifth is held out, the same for every seed");
  images->add_option("--test-labels", data.test_labels, "IDX file of their labels");
  images->add_option("--image-size", data.image_size, "rescale to this height and width; 0 = as they are")
      ->capture_default_str();
  images
      ->add_option("--crop-padding", augment.crop_padding, "random crops of images padded by this; 0 = none")
      ->capture_default_str();
  images->add_flag("--flip,!--no-flip", augment.flip, "flip every other image left to right (default)");
  images->add_option("--cutout", augment.cutout, "side of the square that is blanked; 0 = none")
      ->capture_default_str();
}

}  // namespace bilevel::cli
