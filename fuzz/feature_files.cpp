// A user's own file of examples, whose format is told by its first bytes.
#include "bilevel/data/feature_files.h"

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_feature_files(std::string_view bytes) {
  const std::string path = path_of(bytes);
  const std::string labels = path_of("0\n1\n", 1);
  return taken_file(path,
                    [&](const auto& file) {
                      (void)read_labelled_files({{file, ""}});
                    }) +
         taken([&] {
           (void)append_ones(read_labelled_files({{path, labels}}).at(0).features);
         }) +
         taken([&] {
           (void)read_labelled_files({{labels, path}});
         });
}

const Register feature_files_target("feature_files", give_feature_files);

}  // namespace
}  // namespace bilevel::fuzz
