// Models of `bilevel learn`, which travel from one person to another.
#include "bilevel/meta/model_file.h"

#include <ATen/ATen.h>

#include "fuzz/sealed.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_model(std::string_view bytes) {
  const auto reader = [&](const auto& file) {
    const meta::LearnedModel model = meta::load_model(file);
    require(model.x.nbytes() <= bytes.size(), "model: more data than the file has");
    (void)taken<std::invalid_argument>([&] { (void)model.make_learner(5, model.x.options()); });
  };
  const int result = taken_file(path_of(bytes), reader);
  return result + taken_file(path_of(sealed(bytes)), reader);
}

const Register model_target("model", give_model);

}  // namespace
}  // namespace bilevel::fuzz
