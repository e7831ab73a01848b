#pragma once
// The numbers of a run's metrics.jsonl as curves: which of them belong into one picture, and against what
// they are drawn. Nothing here knows a job: names say what a number is.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/report/curve_group.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_folder.h"

namespace bilevel {

std::optional<double> value_of(const Json& line, const Measure& measure);
// All that the records have, in the order in which they bring them.
std::vector<Measure> measures_of(const std::vector<const Metrics*>& runs);

// The last record that has it; nothing where none has.
std::optional<double> last_value(const Metrics& metrics, const Measure& measure);

// For people: "outer loss", "norm of the direction".
std::string title_of(const std::string& name);
std::string capital(std::string text);  // its first letter
bool is_percent(std::string_view name);
std::string value_text(const std::string& name, double value);

// What the curves are drawn against.
struct Axis {
  std::string id;     // steps, calls, seconds
  std::string label;  // "epoch", "oracle calls", "seconds"
};
// Those that the records have.
std::vector<Axis> axes_of(const std::vector<const Metrics*>& runs);
std::optional<double> position(const Json& line, const Axis& axis);
// Gradients and products together.
std::optional<double> oracle_calls(const Json& line);
// Above a factor of 20 a scale is logarithmic.
bool wants_logarithm(double low, double high);

// `first` as they are given, less what the records do not have; then losses, accuracies, norms of directions,
// error bounds, and every other number that changes. Objects of numbers make a picture each. Measures that
// never change come back in `constant`.
std::vector<CurveGroup> curve_groups(const Metrics& metrics, const std::vector<CurveGroup>& first,
                                     const std::vector<std::string>& ignored,
                                     std::vector<std::pair<std::string, double>>& constant);

// The section of a page, with a switch between the axes that needs no script. One run: a picture for every
// group. Several: a picture for every number of the records, for true accuracies and for operations' shares,
// with a curve for every run.
std::string curves_html(const Metrics& metrics, const std::vector<CurveGroup>& first,
                        const std::vector<std::string>& ignored);
std::string compared_curves_html(const std::vector<const Metrics*>& runs,
                                 const std::vector<std::string>& names);

}  // namespace bilevel
