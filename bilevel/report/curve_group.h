#pragma once
// Which numbers of a run's records belong into one picture of its page.

#include <string>
#include <vector>

namespace bilevel {

// One number of a record: "outer_loss", or "none" of the object "operation_shares".
struct Measure {
  std::string object = {};  // empty = of the record itself
  std::string name;
  bool operator==(const Measure&) const = default;
};

struct CurveGroup {
  std::string title;
  std::string remark = {};  // one sentence under the picture
  std::vector<Measure> measures;
  bool percent = false;
  bool decades = false;  // numbers of an object, too, are drawn on a logarithmic scale where they span many
};

}  // namespace bilevel
