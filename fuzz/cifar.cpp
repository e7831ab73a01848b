// CIFAR's binary records, of either kind.
#include "bilevel/data/image_sets.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_cifar(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return taken_file(path, [](const auto& file) { (void)read_cifar10(file); }) +
         taken_file(path, [](const auto& file) { (void)read_cifar100(file); });
}

const Register cifar_target("cifar", give_cifar);

}  // namespace
}  // namespace bilevel::fuzz
