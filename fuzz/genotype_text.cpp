// Cells as text, in every space. What was read is written and read again.
#include "bilevel/nas/genotype.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_genotype_text(std::string_view bytes) {
  int result = 0;
  for (const std::string& name : nas::space_names()) {
    const nas::SearchSpace space = nas::make_space(name);
    result += taken<std::invalid_argument>([&] {
      const nas::Genotype genotype = nas::parse_genotype(space, bytes);
      require(nas::parse_genotype(space, nas::genotype_text(genotype)) == genotype,
              "genotype: another cell when read again");
      (void)nas::operation_shares(space, genotype);
    });
  }
  return result;
}

const Register genotype_text_target("genotype_text", give_genotype_text);

}  // namespace
}  // namespace bilevel::fuzz
