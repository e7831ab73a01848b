// What is read of a run's folder: its facts and its metrics.
#include "bilevel/run/run_folder.h"

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int give_run_folder(std::string_view bytes) {
  const std::string facts = folder_of(bytes, "run.json");
  int result = taken_file(facts, [](const auto& folder) { (void)read_run(folder); });
  const Metrics metrics = read_metrics(folder_of(bytes, "metrics.jsonl"));
  for (const auto& line : metrics.lines) {
    require(line.is_object(), "metrics: a line that is no object");
    (void)taken<nlohmann::json::exception>([&] { (void)line.dump(); });  // text that is not UTF-8
  }
  return result + (metrics.lines.empty() ? 0 : 1);
}

const Register run_folder_target("run_folder", give_run_folder);

}  // namespace
}  // namespace bilevel::fuzz
