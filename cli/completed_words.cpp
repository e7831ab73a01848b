#include "cli/completed_words.h"

#include "bilevel/algorithms/registry.h"
#include "bilevel/core/inner.h"
#include "bilevel/data/image_sets.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/task_data.h"
#include "bilevel/nas/space.h"
#include "reproduce/reproduce.h"

namespace bilevel::cli {
namespace {

template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

// Registries whose rows a field takes by name: their names are not choices of the table, because other words
// may be allowed beside them ("auto") or C++ code may add its own.
std::vector<std::string> names_behind(const std::string& command, const std::string& field) {
  if (field == "problem") return names_of(all_problem_rows());
  if (field == "algorithm" || field == "algorithms") return names_of(algorithm_rows());
  if (field == "methods" || (field == "method" && command == "solve")) return names_of(estimator_rows());
  if (field == "inner_optimizer") return inner_optimizer_names();
  if (field == "space") return nas::space_names();
  if (field == "item") return names_of(reproduce::items());
  if (field == "learner") return meta::learner_names();
  if (field == "network" && command == "learn") return meta::network_names();
  if (field == "data" && command == "learn") return meta::task_data_names();
  if (field == "data" && (command == "search" || command == "train")) return image_set_names();
  return {};
}

}  // namespace

CompletedWords words_behind(const CLI::App& command, const OptionRow& row) {
  const Field& field = row.field;
  CompletedWords found{.words = field.choices,
                       .by_comma = field.is_list && !row.is_positional && !field.is_repeated};
  if (found.words.empty()) found.words = names_behind(command.get_name(), field.name);
  const bool is_place = field.name == "data" || found.words.empty();
  found.files = field.type == FieldType::text && is_place;
  return found;
}

}  // namespace bilevel::cli
