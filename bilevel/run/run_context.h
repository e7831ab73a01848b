#pragma once
// What a job has around it: a folder where its run is kept or none, who is notified of its progress, and who
// may stop it. A context made without arguments keeps nothing, prints nothing and is never interrupted, so a
// job can be called from any program.
//
// Needs nlohmann-json where it is included.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bilevel/distributed/process_group.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/run/run_folder.h"

namespace bilevel {

// How far a run is.
struct StepProgress {
  std::string job;                                         // "solve"
  int64_t step = 0, total = 0;                             // 0 = not known
  int64_t before = 0;                                      // steps that an earlier process made
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN = not known
  double direction_norm = std::numeric_limits<double>::quiet_NaN();
  std::string more = {};
};

class RunContext {
 public:
  struct Place {
    bool keep = false;         // in a folder
    bool tensorboard = false;  // with an event file in it
    std::string out = {};      // its name; runs/JOB-DATE-TIME-SEED by default
    std::string resume = {};   // a folder whose run to resume
    double save_seconds = 10;  // between two checkpoints
    // The processes that do the job together, or none. Rank 0 alone keeps the folder; all of them can read
    // it.
    std::shared_ptr<ProcessGroup> group = {};
  };
  struct Listener {
    std::function<void(const std::string& text)> progress = {};  // may be called as often as one likes
    std::function<void(const StepProgress& at)> step = {};
    std::function<void(const std::string& text)> line = {};  // one that stays
    std::function<void(const std::string& text)> warning = {};
    std::function<bool()> progress_due = {};  // whether a call now would be seen: a text may cost time
    std::function<bool()> interrupted = {};   // asked between two steps
    // Its folder comes next, and what is done from then on is kept. Whoever minds signals begins here: once
    // others can see the folder, a signal must find its listener.
    std::function<void()> opening = {};
  };
  RunContext() = default;
  RunContext(Place place, Listener listener) : place_(std::move(place)), listener_(std::move(listener)) {}

  void progress(const std::string& text) const {
    if (listener_.progress) listener_.progress(text);
  }
  bool progress_due() const { return listener_.progress_due && listener_.progress_due(); }
  void step(const StepProgress& at) const {
    if (listener_.step) listener_.step(at);
  }
  void line(const std::string& text) const {
    if (listener_.line) listener_.line(text);
  }
  void warning(const std::string& text) const {
    if (listener_.warning) listener_.warning(text);
  }
  // Of several processes one is enough. All of them ask at the same places, or interrupted_here().
  bool interrupted() const {
    return place_.group ? place_.group->any(interrupted_here()) : interrupted_here();
  }
  bool interrupted_here() const { return listener_.interrupted && listener_.interrupted(); }

  const Place& place() const { return place_; }
  const std::shared_ptr<ProcessGroup>& group() const { return place_.group; }
  bool has_other_ranks() const { return place_.group && place_.group->size() > 1; }
  // Throws OptionError if a rank has something other than rank 0, naming both.
  void agree(const std::string& what, const nlohmann::ordered_json& mine) const;
  bool resumes() const { return !place_.resume.empty(); }
  double save_seconds() const { return place_.save_seconds; }

  // What config.json holds beside the options, such as what was chosen for the run; null where there is
  // nothing. A resumed run has what was stored.
  nlohmann::ordered_json notes() const;
  void note(const std::string& name, nlohmann::ordered_json value);

  // The folder, new or resumed, where the run is kept; call it once all options have their values.
  void open(const std::string& job, uint64_t seed, const OptionsView& options);
  bool has_folder() const { return folder_ != nullptr; }
  RunFolder& folder() { return *folder_; }
  // Empty where nothing is kept.
  std::string folder_name() const { return folder_ ? folder_->path() : ""; }
  // Where a run is resumed from; warns of a damaged checkpoint and of a machine with other bits.
  std::optional<Checkpoint> load();

  // Of the folder, where there is one.
  void record(const nlohmann::ordered_json& line);
  // Of the event file, where there is one: drawing costs time.
  bool shows_pictures() const { return folder_ && folder_->has_events(); }
  void picture(const std::string& name, int64_t step, const std::string& png);
  void save(Checkpoint checkpoint);
  void end(RunStatus status, const std::string& message, const nlohmann::ordered_json& summary);
  // Work in which an exception ends the run as failed, with its message, before it goes on.
  void work(const std::function<void()>& steps);

 private:
  Place place_ = {};
  Listener listener_ = {};
  std::unique_ptr<RunFolder> folder_;
  std::optional<nlohmann::ordered_json> notes_;
};

// runs/JOB-DATE-TIME-SEED, not there yet.
std::string default_run_folder(const std::string& job, uint64_t seed);

// config.json as this version writes it, from one of an earlier version, which had flags for names and words
// for numbers: {"options": {"--terms": ["3"]}} becomes {"options": {"terms": 3}}.
nlohmann::ordered_json current_config(nlohmann::ordered_json config);

// config.json of a run, of this version or an earlier one.
struct StoredRun {
  std::string folder = {};
  std::string job;
  NamedWords given, effective;
  nlohmann::ordered_json notes;
};
StoredRun read_stored_run(const std::string& folder);

}  // namespace bilevel
