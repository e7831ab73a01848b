// Cells as JSON, in every space. What was read is written and read again.
#include "bilevel/nas/genotype.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_genotype_json(std::string_view bytes) {
  int result = 0;
  for (const std::string& name : nas::space_names()) {
    const nas::SearchSpace space = nas::make_space(name);
    result += taken<std::invalid_argument>([&] {
      const nas::Genotype genotype = nas::genotype_from_json(space, bytes);
      require(nas::genotype_from_json(space, nas::genotype_json(genotype)) == genotype,
              "genotype JSON: another cell when read again");
      require(nas::parse_genotype(space, nas::genotype_text(genotype)) == genotype,
              "genotype JSON: another cell as text");
      (void)nas::genotype_dot(genotype);
    });
  }
  return result;
}

const Register genotype_json_target("genotype_json", give_genotype_json);

}  // namespace
}  // namespace bilevel::fuzz
