// IDX arrays, plain or compressed, and as images and labels.
#include "bilevel/data/idx.h"

#include <ATen/ATen.h>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_idx(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return taken_file(path, [](const auto& file) { (void)read_idx(file); }) +
         taken_file(path, [](const auto& file) { (void)read_idx_images(file); }) +
         taken_file(path, [](const auto& file) {
           const Tensor labels = read_idx_labels(file, 10);
           require(labels.lt(10).all().item<bool>(), "IDX: a label beyond the classes");
         });
}

const Register idx_target("idx", give_idx);

}  // namespace
}  // namespace bilevel::fuzz
