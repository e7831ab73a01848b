#pragma once
// The folder of a run: its options, where it runs, how it went so far, and where it is resumed from.
// Every file is either whole or not there, and a process killed at any time leaves a folder that can be read,
// shown and resumed.
//
//     run.json       which command, since when, on what machine, and its status
//     config.json    the options, which `--config` takes again
//     metrics.jsonl  one line a record, appended as it runs
//     checkpoint     where it is resumed from (run/checkpoint.h), and checkpoint.previous
//     events.out.tfevents.bilevel  the records for TensorBoard, if requested (run/event_file.h)
//     summary.json   the result
//     lock           held by the process that works here
//
// Needs nlohmann-json where it is included.

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel {

class EventFile;

enum class RunStatus {
  running,
  finished,
  interrupted,  // by a signal, with its state saved
  failed,       // the message says why; the last good state is saved
  killed,       // marked as running, but no process holds the lock
};
std::string_view name_of(RunStatus status);

// run.json, which `bilevel runs` lists.
struct RunFacts {
  std::string folder;
  std::string command;
  RunStatus status = RunStatus::running;
  std::string message;         // of a failure
  std::string started, ended;  // local time, 2026-01-31T12:00:00
  uint64_t seed = 0;
  MachineFacts machine;
};
// Throws std::runtime_error naming the file and what is wrong with it.
RunFacts read_run(const std::string& folder);
bool is_run(const std::string& folder);  // has a run.json

// A folder was given as a run's and holds none: "OPTION = FOLDER: there is no run.json in it; ...".
class MissingRunError : public RunError {
 public:
  MissingRunError(const std::string& option, const std::string& folder);
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};
void require_run_to_resume(const std::string& folder);  // or throws MissingRunError

nlohmann::ordered_json read_json_file(const std::string& path, int64_t most_bytes = 64 << 20);
// Lines that are no JSON objects, such as the torn last one of a killed process, are left out and counted.
struct Metrics {
  std::vector<nlohmann::ordered_json> lines;
  int64_t torn = 0;
};
Metrics read_metrics(const std::string& folder);

class RunFolder {
 public:
  struct New {
    std::string command;
    uint64_t seed = 0;
    nlohmann::ordered_json config = nlohmann::ordered_json::object();
  };
  // Makes the folder and those above it. Throws std::invalid_argument if it holds a run or other files.
  static RunFolder create(const std::string& folder, const New& run);
  // Resumes in a folder that has one. Throws std::runtime_error if another process is using it.
  static RunFolder resume(const std::string& folder);

  RunFolder(RunFolder&&) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  RunFolder(const RunFolder&) = delete;
  ~RunFolder();  // gives the lock back; a run that did not end() reads as killed

  const std::string& path() const { return folder_; }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  // From now on records go to an event file too. A resumed folder that has one continues it by default.
  void write_events();
  bool has_events() const { return events_ != nullptr; }
  void picture(const std::string& name, int64_t step, const std::string& png);  // to the event file

  void record(const nlohmann::ordered_json& line);  // appended to metrics.jsonl, at once
  void save(Checkpoint checkpoint);                 // with the place that metrics.jsonl has reached
  // The last good checkpoint, or none where the run was killed before its first; metrics.jsonl is cut back to
  // what it had then, so that records come once. Its `warning` says so if the previous one was used.
  std::optional<Checkpoint> load();

  // The last word. A summary of null leaves the one that is there.
  void end(RunStatus status, const std::string& message = "",
           const nlohmann::ordered_json& summary = nullptr);

 private:
  RunFolder(std::string folder, int lock);
  void write_facts(RunStatus status, const std::string& message) const;

  std::string folder_;
  int lock_ = -1;  // a file descriptor
  nlohmann::ordered_json facts_;
  std::unique_ptr<EventFile> events_;
};

// The rest of a command, in which an exception ends the run as failed, with its message, before it goes on.
void work_in(RunFolder& run, const std::function<void()>& work);

}  // namespace bilevel
