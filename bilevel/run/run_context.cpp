#include "bilevel/run/run_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bilevel/run/json_value.h"
#include "bilevel/run/machine.h"

namespace bilevel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t largest_config = 1 << 20;

}  // namespace

std::string default_run_folder(const std::string& job, uint64_t seed) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y%m%d-%H%M%S", &local);
  const std::string base = fmt::format("runs/{}-{}-{}", job, date.data(), seed);
  std::string folder = base;
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = fmt::format("{}-{}", base, i);
  return folder;
}

StoredRun read_stored_run(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json config = read_json_file(path, largest_config);
  try {
    StoredRun run;
    run.job = config.at("command").get<std::string>();
    run.given = words_of(config.at("options"));
    run.effective = words_of(config.at("effective"));
    run.notes = config.value("notes", Json::object());
    // Earlier versions kept what was chosen for a run in an option that no help showed.
    const auto hidden = std::find_if(run.given.begin(), run.given.end(),
                                     [](const auto& option) { return option.first == "auto_choice"; });
    if (hidden != run.given.end()) {
      run.notes["auto"] = parse_bounded<Json>(hidden->second.at(0));
      run.given.erase(hidden);
    }
    return run;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

Json RunContext::notes() const {
  if (notes_) return *notes_;
  return resumes() ? read_stored_run(place_.resume).notes : Json::object();
}

void RunContext::note(const std::string& name, Json value) {
  Json all = notes();
  all[name] = std::move(value);
  notes_ = std::move(all);
}

void RunContext::open(const std::string& job, uint64_t seed, const OptionsView& options) {
  if (resumes()) {
    folder_ = std::make_unique<RunFolder>(RunFolder::resume(place_.resume));
  } else if (place_.keep) {
    Json config = {{"command", job},
                   {"version", machine_facts().version},
                   {"options", options.given_json()},
                   {"effective", options.effective_json()}};
    if (const Json all = notes(); !all.empty()) config["notes"] = all;
    folder_ = std::make_unique<RunFolder>(
        RunFolder::create(place_.out.empty() ? default_run_folder(job, seed) : place_.out,
                          {.command = job, .seed = seed, .config = std::move(config)}));
  }
  if (listener_.opened) listener_.opened();
}

std::optional<Checkpoint> RunContext::load() {
  if (!folder_ || !resumes()) return std::nullopt;
  std::optional<Checkpoint> checkpoint = folder_->load();
  if (!checkpoint) return checkpoint;
  if (!checkpoint->warning.empty()) warning(checkpoint->warning);
  for (const std::string& difference : differences(checkpoint->machine, machine_facts())) warning(difference);
  return checkpoint;
}

void RunContext::record(const Json& line) {
  if (folder_) folder_->record(line);
}

void RunContext::save(Checkpoint checkpoint) {
  if (folder_) folder_->save(std::move(checkpoint));
}

void RunContext::end(RunStatus status, const std::string& message, const Json& summary) {
  if (folder_) folder_->end(status, message, summary);
}

void RunContext::work(const std::function<void()>& steps) {
  if (folder_) {
    work_in(*folder_, steps);
  } else {
    steps();
  }
}

}  // namespace bilevel
