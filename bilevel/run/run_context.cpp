#include "bilevel/run/run_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bilevel/data/sha256.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/renamed.h"
#include "bilevel/run/json_value.h"
#include "bilevel/run/machine.h"

namespace bilevel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t largest_config = 1 << 20;

// Once, what was chosen for a run was kept in an option that no help showed.
constexpr const char* hidden_choice = "auto_choice";

// "3" -> 3; text that is no number stays.
Json as_typed(const Json& word) {
  if (!word.is_string()) return word;
  const auto text = word.get<std::string>();
  if (text == "true" || text == "false") return text == "true";
  const Json read = Json::parse(text, nullptr, false);
  return read.is_number() ? read : word;
}

std::string digest_of_metadata(const Checkpoint& checkpoint) {
  Sha256 digest;
  digest.add(checkpoint.metadata.dump());
  return digest.hex();
}

}  // namespace

Json current_config(Json config) {
  for (const char* part : {"options", "effective"}) {
    if (!config.is_object() || !config.contains(part) || !config[part].is_object()) continue;
    Json now = Json::object();
    for (const auto& [name, value] : config[part].items()) {
      const std::string stored = field_name(name), field = current_field(stored);
      if (stored == name) {
        now[field] = value;
      } else if (value.is_array() && value.size() != 1) {
        now[field] = Json::array();
        for (const Json& word : value) now[field].push_back(as_typed(word));
      } else {
        now[field] = as_typed(value.is_array() ? value.front() : value);
      }
    }
    if (now.contains(hidden_choice)) {
      if (now[hidden_choice].is_string()) {
        try {
          config["notes"]["auto"] = parse_bounded<Json>(now[hidden_choice].get<std::string>());
        } catch (const std::exception&) {
          // Nobody's note: the run has its options all the same.
        }
      }
      now.erase(hidden_choice);
    }
    config[part] = std::move(now);
  }
  return config;
}

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
  const Json config = current_config(read_json_file(path, largest_config));
  try {
    StoredRun run;
    run.folder = folder;
    run.job = config.at("command").get<std::string>();
    run.given = words_of(config.at("options"));
    run.effective = words_of(config.at("effective"));
    run.notes = config.value("notes", Json::object());
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

void RunContext::agree(const std::string& what, const Json& mine) const {
  if (!place_.group) return;
  const std::vector<std::string> all =
      place_.group->gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Json first = Json::parse(all[0]), other = Json::parse(all[rank]);
    Json names = first;
    names.update(other);
    for (const auto& [name, unused] : names.items()) {
      const Json here = first.value(name, Json()), there = other.value(name, Json());
      if (here == there) continue;
      const auto text = [what, field = name](const Json& value) {
        if (what != "options") return field + " " + value.dump();
        const auto words =
            value.is_null() ? std::vector<std::string>() : value.get<std::vector<std::string>>();
        return named(field, fmt::format("{}", fmt::join(words, ",")));
      };
      throw OptionError(fmt::format(
          "the ranks have different {}: {} on rank 0 and {} on rank {}; start all of them the same way", what,
          text(here), text(there), rank));
    }
  }
}

void RunContext::open(const std::string& job, uint64_t seed, const OptionsView& options) {
  if (place_.group) {
    const MachineFacts facts = machine_facts();
    agree("programs", {{"version", facts.version}, {"LibTorch", facts.torch}, {"command", job}});
    Json decides = Json::object();
    for (const Field& field : options.fields()) {
      if (field.kind == FieldKind::result) decides[field.name] = options.words(field);
    }
    agree("options", decides);
  }
  if (listener_.opening) listener_.opening();
  if (place_.group && place_.group->rank() != 0) return;
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
  if (folder_ && place_.tensorboard) folder_->write_events();
}

std::optional<Checkpoint> RunContext::load() {
  if (!resumes() || (!folder_ && !place_.group)) return std::nullopt;
  std::optional<Checkpoint> checkpoint;
  if (folder_) {
    checkpoint = folder_->load();
  } else if (const std::string path = place_.resume + "/checkpoint";
             std::filesystem::exists(path) || std::filesystem::exists(previous_checkpoint(path))) {
    checkpoint = load_checkpoint(path);
  }
  if (place_.group) {
    agree("checkpoints", {{"content", checkpoint ? digest_of_metadata(*checkpoint) : "none"}});
  }
  if (!checkpoint) return checkpoint;
  const auto ranks = checkpoint->metadata.find("ranks");
  const int ranks_then =
      ranks != checkpoint->metadata.end() && ranks->is_number_integer() ? ranks->get<int>() : 1;
  if (const int now = place_.group ? place_.group->size() : 1; now != ranks_then) {
    warning(fmt::format(
        "the run was saved by {} rank{} and is resumed by {}: sums are added in a different order, so its "
        "numbers agree with those of an uninterrupted run up to rounding, not to the same bits",
        ranks_then, ranks_then == 1 ? "" : "s", now));
  }
  if (!checkpoint->warning.empty()) warning(checkpoint->warning);
  for (const std::string& difference : differences(checkpoint->machine, machine_facts())) warning(difference);
  return checkpoint;
}

void RunContext::record(const Json& line) {
  if (folder_) folder_->record(line);
}

void RunContext::picture(const std::string& name, int64_t step, const std::string& png) {
  if (folder_) folder_->picture(name, step, png);
}

void RunContext::save(Checkpoint checkpoint) {
  if (!folder_) return;
  if (place_.group) checkpoint.metadata["ranks"] = place_.group->size();
  folder_->save(std::move(checkpoint));
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
