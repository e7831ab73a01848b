#pragma once
// One way to labelled images, whatever they are stored in: a set known by name, a folder of class folders, or
// IDX files.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/labelled_images.h"

namespace bilevel {

struct ImageDataOptions {
  // mnist, fashion-mnist, cifar10, cifar100; else a folder of class folders, perhaps below train/ and test/;
  // else an IDX file of images.
  std::string data = "cifar10";
  std::string folder = "data";   // where sets known by name are looked for
  std::string labels = {};       // the IDX file of labels, for an IDX file of images
  std::string test_images = {};  // IDX files of the test set, both or none
  std::string test_labels = {};
  int64_t image_size =
      0;  // rescales every image to this height and width; 0 keeps their own, or a folder's one
  // Held out, class by class, where no test set is given: always the same images, whatever the seed of the
  // run and the size that they are rescaled to. What one command learns on, another never tests on.
  double test_fraction = 0.2;

  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};

struct ImageData {
  LabelledImages train, test;  // of uint8 on the CPU, with 1 or 3 channels
  Tensor held_out;  // int64: where the test images stood among all; undefined where a test set was given
  int64_t classes = 0;
  std::vector<std::string> class_names;
  std::vector<double> mean, std;   // per channel, of pixels from 0 to 255
  std::vector<std::string> notes;  // what was done to pictures of several sizes, a sentence each
};

// Throws std::runtime_error naming the file that is missing or wrong, and a way out.
ImageData load_image_data(const ImageDataOptions& options);

// Takes this fraction of the training images, class by class, for a test set. They follow from the labels
// alone, so that files and memory give the same. Throws std::invalid_argument where either set would be
// empty.
void hold_out_test(ImageData& data, double test_fraction = ImageDataOptions{}.test_fraction);

// Per channel over all pixels, exact; a channel that is constant gets a deviation of 1, as there is nothing
// to scale.
void measure_channels(const Tensor& images, std::vector<double>& mean, std::vector<double>& std);

}  // namespace bilevel
