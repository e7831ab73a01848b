// Sparse examples as text. What was read must be a valid matrix.
#include "bilevel/data/svmlight.h"

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int read_with(const std::string& path, const SvmlightOptions& options) {
  return taken_file(path, [&](const auto& file) { read_svmlight(file, options).examples.validate(); });
}

int give_svmlight(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return read_with(path, {}) +
         read_with(path, {.base = IndexBase::zero, .ignore_query_ids = true, .dtype = at::kDouble});
}

const Register svmlight_target("svmlight", give_svmlight);

}  // namespace
}  // namespace bilevel::fuzz
