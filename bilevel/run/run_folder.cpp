#include "bilevel/run/run_folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "bilevel/data/file_error.h"
#include "bilevel/data/folder.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/blas_kernels.h"
#include "bilevel/run/event_file.h"
#include "bilevel/run/json_value.h"

namespace bilevel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr int most_threads = 1024;  // as --threads has it; a resumed run starts that many
constexpr std::array<std::string_view, 5> status_names{"running", "finished", "interrupted", "failed",
                                                       "killed"};

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &local);
  return text.data();
}

Json machine_json(const MachineFacts& m) {
  return {{"torch", m.torch}, {"blas", m.blas},       {"kernels", kernels_named_in(m.blas)},
          {"cpu", m.cpu},     {"threads", m.threads}, {"cuda", m.cuda}};
}

std::string cause() { return std::strerror(errno); }

// -1 where another process has it.
int try_lock(const std::string& path, int flags) {
  const int lock = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (lock < 0) throw std::runtime_error(fmt::format("{}: cannot be opened: {}", path, cause()));
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  ::close(lock);
  return -1;
}

bool somebody_works(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int lock = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return false;
  const bool is_free = ::flock(lock, LOCK_SH | LOCK_NB) == 0;
  ::close(lock);
  return !is_free;
}

// Of a process that was killed between run.json and config.json, which is written before it.
bool began_a_run(const std::string& config) {
  if (::access(config.c_str(), F_OK) != 0) return true;
  try {
    const Json written = read_json_file(config, 1 << 20);
    return written.is_object() && written.contains("command") && written.contains("options");
  } catch (const std::runtime_error&) {
    return false;
  }
}

// What a killed process was about to rename, by write_file() and save_checkpoint().
bool is_unfinished(const std::string& name) {
  const size_t mark = name.rfind(".tmp-");
  return mark != std::string::npos && name.find_first_not_of("0123456789-", mark + 5) == std::string::npos;
}

void remove_unfinished(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    if (is_unfinished(name)) ::unlink((folder + "/" + name).c_str());
  }
}

// Each command has its own names for what it writes, so that any file may be in the way of one, now or when
// the run ends. No run writes a hidden file or a .log, which a shell may have opened for our output.
void require_no_other_files(const std::string& folder) {
  std::vector<std::string> others;
  for (const std::string& name : names_in(folder)) {
    const bool of_a_run_that_never_began = name == "config.json" || name == "lock" || is_unfinished(name);
    if (!name.ends_with(".log") && !of_a_run_that_never_began) others.push_back(name);
  }
  if (others.empty()) return;
  constexpr size_t shown = 3;
  const size_t more = others.size() - std::min(others.size(), shown);
  others.resize(std::min(others.size(), shown));
  throw OptionError(fmt::format(
      "{}: the folder holds other files ({}{}), which the run could overwrite; give a new "
      "or an empty folder",
      named("out", folder), fmt::join(others, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
}

int64_t size_of(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<int64_t>(status.st_size) : 0;
}

}  // namespace

std::string_view name_of(RunStatus status) { return status_names.at(static_cast<size_t>(status)); }

MissingRunError::MissingRunError(const std::string& option, const std::string& folder)
    : RunError(
          fmt::format("{}: there is no run.json in it; give the folder of a run", named(option, folder))),
      folder_(folder) {}

void require_run_to_resume(const std::string& folder) {
  if (!is_run(folder)) throw MissingRunError("resume", folder);
}

bool is_run(const std::string& folder) { return ::access((folder + "/run.json").c_str(), F_OK) == 0; }

namespace {

// "line 2, column 18: unexpected ','; expected string literal", of a message of nlohmann's, which begins with
// numbers of its own.
std::string json_fault(const std::string& message) {
  const size_t line = message.find("line "), colon = message.find(": ", line),
               dash = message.find(" - ", colon);
  if (line == std::string::npos || colon == std::string::npos || dash == std::string::npos) return message;
  return message.substr(line, colon + 2 - line) + message.substr(dash + 3);
}

}  // namespace

Json read_json_file(const std::string& path, int64_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    throw_file_error(path, reason, fmt::format("cannot be opened: {}", std::strerror(reason)));
  }
  if (const int64_t bytes = size_of(path); bytes > most_bytes) {
    throw FileError(path,
                    fmt::format("{} bytes, expected at most {}: is it the right file?", bytes, most_bytes));
  }
  try {
    return parse_bounded<Json>(file);
  } catch (const std::exception& error) {
    throw FileError(path, fmt::format("expected JSON: {}", json_fault(error.what())));
  }
}

RunFacts read_run(const std::string& folder) {
  const std::string path = folder + "/run.json";
  const Json json = read_json_file(path, 1 << 20);
  RunFacts facts;
  facts.folder = folder;
  try {
    if (const int version = json_as<int>(json.at("format")); version != format_version) {
      throw std::runtime_error(fmt::format("format {}, expected {}", version, format_version));
    }
    facts.command = json.at("command").get<std::string>();
    const auto status = json.at("status").get<std::string>();
    size_t number = 0;
    while (number < status_names.size() && status_names.at(number) != status) ++number;
    if (number == status_names.size()) throw std::runtime_error(fmt::format("status '{}'", status));
    facts.status = static_cast<RunStatus>(number);
    facts.message = json.value("message", "");
    facts.started = json.value("started", "");
    facts.ended = json.value("ended", "");
    facts.seed = json.contains("seed") ? json_as<uint64_t>(json["seed"]) : 0;
    facts.machine.version = json.value("version", "");
    const Json& machine = json.at("machine");
    facts.machine.torch = machine.value("torch", "");
    facts.machine.blas = machine.value("blas", "");
    facts.machine.cpu = machine.value("cpu", "");
    facts.machine.threads = machine.contains("threads") ? json_as<int>(machine["threads"]) : 1;
    if (facts.machine.threads < 1 || facts.machine.threads > most_threads) {
      throw std::runtime_error(
          fmt::format("threads {}, expected 1 to {}", facts.machine.threads, most_threads));
    }
    facts.machine.cuda = machine.value("cuda", false);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: not the facts of a run: {}", path, error.what()));
  }
  if (facts.status == RunStatus::running && !somebody_works(folder)) facts.status = RunStatus::killed;
  return facts;
}

Metrics read_metrics(const std::string& folder) {
  Metrics metrics;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json json;
    try {
      json = parse_bounded<Json>(line);
    } catch (const std::exception&) {  // it stays null
    }
    if (json.is_object()) {
      metrics.lines.push_back(std::move(json));
    } else {
      ++metrics.torn;
    }
  }
  return metrics;
}

RunFolder::RunFolder(std::string folder, int lock) : folder_(std::move(folder)), lock_(lock) {}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      lock_(std::exchange(other.lock_, -1)),
      facts_(std::move(other.facts_)),
      events_(std::move(other.events_)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

namespace {

void make_run_folder(const std::string& folder) {
  try {
    make_folder(folder);
  } catch (const FileError& error) {
    throw RunError(fmt::format("{}: {}", named("out", folder), error.cause()));
  }
}

}  // namespace

RunFolder RunFolder::create(const std::string& folder, const New& run) {
  make_run_folder(folder);
  if (is_run(folder)) {
    throw OptionError(
        fmt::format("{}: there is a run in it already; resume it with {} or give another folder",
                    named("out", folder), named("resume", folder)));
  }
  if (!began_a_run(folder + "/config.json")) {
    throw OptionError(
        fmt::format("{}: there is a config.json in it that does not belong to a run; give another folder",
                    named("out", folder)));
  }
  require_no_other_files(folder);
  const int lock = try_lock(folder + "/lock", O_RDWR | O_CREAT);
  if (lock < 0) {
    throw OptionError(fmt::format("{}: another process is using it", named("out", folder)));
  }
  RunFolder result(folder, lock);
  const MachineFacts machine = machine_facts();
  write_file(result.file("config.json"), run.config.dump(2) + "\n");
  result.facts_ = {
      {"format", format_version},        {"command", run.command},  {"status", ""}, {"message", ""},
      {"version", machine.version},      {"started", local_time()}, {"ended", ""},  {"seed", run.seed},
      {"machine", machine_json(machine)}};
  result.write_facts(RunStatus::running, "");
  return result;
}

RunFolder RunFolder::resume(const std::string& folder) {
  require_run_to_resume(folder);
  (void)read_run(folder);  // throws where it is damaged
  const int lock = try_lock(folder + "/lock", O_RDWR | O_CREAT);
  if (lock < 0) {
    throw RunError(fmt::format("{}: another process is using it", named("resume", folder)));
  }
  RunFolder result(folder, lock);
  remove_unfinished(folder);
  result.facts_ = read_json_file(result.file("run.json"));
  result.facts_["ended"] = "";
  const MachineFacts machine = machine_facts();
  result.facts_["version"] = machine.version;
  result.facts_["machine"] = machine_json(machine);
  result.write_facts(RunStatus::running, "");
  if (::access(EventFile::path_in(folder).c_str(), F_OK) == 0) result.write_events();
  return result;
}

void RunFolder::write_events() {
  if (!events_) events_ = std::make_unique<EventFile>(EventFile::path_in(folder_));
}

void RunFolder::picture(const std::string& name, int64_t step, const std::string& png) {
  if (events_) events_->picture(name, step, png);
}

void RunFolder::write_facts(RunStatus status, const std::string& message) const {
  Json facts = facts_;
  facts["status"] = name_of(status);
  facts["message"] = message;
  write_file(file("run.json"), facts.dump(2) + "\n");
}

void RunFolder::record(const Json& line) {
  const std::string path = file("metrics.jsonl"), text = line.dump() + "\n";
  const int out = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  // One call: a process that is killed leaves the line or leaves it out.
  const bool written =
      out >= 0 && ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = cause();
  if (out >= 0) ::close(out);
  if (!written) throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, why));
  if (events_) events_->record(line);
}

void RunFolder::save(Checkpoint checkpoint) {
  checkpoint.metadata["metrics_bytes"] = size_of(file("metrics.jsonl"));
  save_checkpoint(file("checkpoint"), checkpoint);
}

std::optional<Checkpoint> RunFolder::load() {
  const std::string path = file("checkpoint"), metrics = file("metrics.jsonl");
  std::optional<Checkpoint> checkpoint;
  int64_t reached = 0;
  if (::access(path.c_str(), F_OK) == 0 || ::access(previous_checkpoint(path).c_str(), F_OK) == 0) {
    checkpoint = load_checkpoint(path);
    // The next save keeps what is called `checkpoint` as the one before: that must not be the damaged one.
    if (!checkpoint->warning.empty() && ::rename(previous_checkpoint(path).c_str(), path.c_str()) != 0) {
      throw std::runtime_error(fmt::format("{}: cannot be replaced by the one before it: {}", path, cause()));
    }
    const auto stored = checkpoint->metadata.find("metrics_bytes");
    if (stored != checkpoint->metadata.end()) reached = json_as<int64_t>(*stored);
  }
  if (reached >= 0 && size_of(metrics) > reached && ::truncate(metrics.c_str(), reached) != 0) {
    throw std::runtime_error(fmt::format("{}: cannot be shortened: {}", metrics, cause()));
  }
  // The event file is written again from the records that are left.
  if (events_) {
    for (const Json& line : read_metrics(folder_).lines) events_->record(line);
  }
  return checkpoint;
}

void RunFolder::end(RunStatus status, const std::string& message, const Json& summary) {
  // A job that solves at once keeps no records.
  if (events_ && events_->records() == 0 && summary.is_object()) events_->result(summary);
  if (!summary.is_null()) write_file(file("summary.json"), summary.dump(2) + "\n");
  facts_["ended"] = local_time();
  write_facts(status, message);
}

void work_in(RunFolder& run, const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    run.end(RunStatus::failed, error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    run.end(RunStatus::failed, error.what());
    throw;
  }
}

}  // namespace bilevel
