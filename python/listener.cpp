#include "python/listener.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/run/run_folder.h"
#include "python/held.h"
#include "python/keywords.h"

namespace bilevel::python {
namespace {

using Clock = std::chrono::steady_clock;

struct ListenerObject {
  py::object object;
};

// How often Python hears of a step: a call takes the lock, and no eye sees more.
constexpr std::chrono::milliseconds between_steps{50};

py::object finite_or_none(double value) {
  return std::isfinite(value) ? py::object(py::float_(value)) : py::object(py::none());
}

void show_step(const py::object& listener, const StepProgress& at) {
  py::dict step;
  step["job"] = at.job;
  step["step"] = at.step;
  step["total"] = at.total > 0 ? py::object(py::int_(at.total)) : py::object(py::none());
  step["before"] = at.before;
  step["loss"] = finite_or_none(at.loss);
  step["direction_norm"] = finite_or_none(at.direction_norm);
  step["text"] = at.more;
  listener.attr("step")(step);
}

std::string place_of(const py::dict& place, const char* name) {
  const py::object value = place.contains(name) ? py::object(place[name]) : py::object(py::none());
  if (value.is_none()) return "";
  const auto path = py::reinterpret_steal<py::object>(PyOS_FSPath(value.ptr()));
  if (!path) throw py::error_already_set();
  return path.cast<std::string>();
}

}  // namespace

RunContext make_context(const py::object& listener, const py::dict& place) {
  RunContext::Place where{.out = place_of(place, "out"), .resume = place_of(place, "resume")};
  where.keep = !where.out.empty() || !where.resume.empty();
  if (!where.out.empty() && !where.resume.empty()) {
    throw OptionError(fmt::format("{} with {}: a resumed run stays in its own folder",
                                  named("resume", where.resume), named("out", where.out)));
  }
  if (place.contains("save_every") && !place["save_every"].is_none()) {
    where.save_seconds = py::float_(py::object(place["save_every"]));
    if (!(where.save_seconds >= 0)) throw py::value_error("save_every: must be at least 0");
  }
  const auto all = held(ListenerObject{listener});
  const bool wants_steps = py::bool_(listener.attr("wants_steps"));
  RunContext::Listener heard;
  heard.line = [all](const std::string& text) {
    const py::gil_scoped_acquire lock;
    all->object.attr("line")(python_text(text));
  };
  heard.warning = [all](const std::string& text) {
    const py::gil_scoped_acquire lock;
    all->object.attr("warning")(python_text(text));
  };
  heard.interrupted = [all] {
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return all->object.attr("stopped")().cast<bool>();
  };
  if (wants_steps) {
    const auto last = std::make_shared<Clock::time_point>();
    const auto due = [last] {
      const Clock::time_point now = Clock::now();
      if (now - *last < between_steps) return false;
      *last = now;
      return true;
    };
    heard.step = [all, due](const StepProgress& at) {
      if (!due() && at.step != at.total) return;
      const py::gil_scoped_acquire lock;
      show_step(all->object, at);
    };
    heard.progress = [all](const std::string& text) {
      const py::gil_scoped_acquire lock;
      all->object.attr("text")(python_text(text));
    };
    heard.progress_due = due;
  }
  return {std::move(where), std::move(heard)};
}

void take_resumed(const std::string& job, OptionsView options, const py::dict& place) {
  const std::string folder = place_of(place, "resume");
  if (folder.empty()) return;
  require_run_to_resume(folder);
  const StoredRun stored = read_stored_run(folder);
  if (stored.job != job) {
    throw OptionError(
        fmt::format("{}: it belongs to {}(), not to {}()", named("resume", folder), stored.job, job));
  }
  const NamedWords words = with_flags_as_named(options, stored.given);
  if (const std::vector<std::string> changed = changed_fields(options, words, stored.effective);
      !changed.empty()) {
    std::vector<std::string> names;
    for (const std::string& field : changed) names.push_back(named(field));
    throw OptionError(
        fmt::format("{} with {}: a resumed run keeps its options. To change them, start a new run with {} "
                    "and the changed options",
                    named("resume", folder), fmt::join(names, ", "), named("out")));
  }
  NamedWords known;
  for (const auto& one : words) {
    if (options.find(one.first) != nullptr) known.push_back(one);
  }
  give_rest(options, known);
  // Another number of threads has other bits.
  if (const Field* threads = options.find("threads");
      threads != nullptr && options.words(*threads).front() == "0") {
    options.give(*threads, {word_of(read_run(folder).machine.threads)});
  }
}

}  // namespace bilevel::python
