#pragma once
// A supernet with 517 weights that still has every part: stem, three cells, both reductions, the head.

#include "bilevel/nas/synthetic_supernet.h"
#include "tests/support.h"

namespace bilevel::nas {

inline SyntheticSupernet small_supernet() {
  SyntheticSupernet options;
  options.operations = {"skip_connect", "nor_conv_1x1"};
  options.channels = 1;
  options.image_size = 8;
  options.images = 12;
  options.tensors = test::doubles();
  return options;
}

}  // namespace bilevel::nas
