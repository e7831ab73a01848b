#pragma once
// Omniglot (Lake, Salakhutdinov, Tenenbaum 2015): 1623 handwritten characters of 50 alphabets, each drawn by
// 20 people, as PNG files of 105 x 105 pixels. The official distribution is two zip files, images_background
// and images_evaluation, with members like images_background/Latin/character01/0682_01.png; unpacked folders
// of the same names do too.

#include <cstdint>
#include <string>

#include "bilevel/data/class_images.h"

namespace bilevel {

struct OmniglotOptions {
  std::string folder;  // holds images_background.zip and images_evaluation.zip, or the unpacked folders
  // Height and width; 28 everywhere in the literature. Pixels are means over areas.
  int64_t image_size = 28;
  void validate() const;
};

// Every character is a class, named ALPHABET/CHARACTER; classes are sorted by their names, images of a class
// by theirs. One channel; dark ink on light paper, as in the files. Throws std::runtime_error naming the
// archive and its member, or the file, that is wrong, and a way out.
ClassImages read_omniglot(const OmniglotOptions& options);

}  // namespace bilevel
