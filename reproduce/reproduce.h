#pragma once
// The papers' tables and figures again, our numbers beside theirs. An item is a function that returns what it
// found as JSON; how that is shown is the same for all.
//
//   {"tables": [{"title": ..., "rows": [{column: value, ...}, ...]}, ...],
//    "claims": [{"claim": ..., "holds": true | false | null, "why": ...}, ...], "notes": [...]}
//
// null: what was run does not decide it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/run/json.h"

namespace bilevel {
class ProcessGroup;
}

namespace bilevel::reproduce {

class FinishedRuns;
struct ReproduceOptions;

// Options that not every item reads; the others refuse them.
struct ItemReads {
  bool search = false;  // `benchmark` and `epochs`
  bool seeds = false;   // several runs of every setting
  bool medium = false;  // has the scale of that name
  bool rule = false;    // of the step of alpha
  bool ranks = false;   // deals its runs out to the ranks of a group (dealt.h)
};

struct Item {
  std::string name;
  std::string summary;
  Json (*run)(const ReproduceOptions&);
  ItemReads reads = {};
};
const std::vector<Item>& items();
// Throws std::invalid_argument with all names where it is unknown.
const Item& find_item(const std::string& name);

struct ReproduceOptions {
  // quick: within 3 minutes on two cores; medium: what decides the claims on two cores in less than an hour,
  // for the items that have it; full: the paper's lengths and sizes.
  std::string scale = "quick";
  std::string data_dir;         // where data are; what that means is the item's affair
  std::string benchmark;        // the table of trained cells, for the items that search; empty = looked for
  int64_t epochs = 0;           // of every search; 0 = as the scale has them
  std::vector<uint64_t> seeds;  // runs of every setting; empty = as many as the scale has, from `seed` on
  std::string rule = "paper";   // of the step of alpha in idarts:table1; or public-code (public_rule.h)
  uint64_t seed = 0;
  at::TensorOptions tensors;  // for the items on data; the small ones are in double in any case
  std::string out;            // folder for an item's own files; empty = none are written
  std::shared_ptr<ProcessGroup> group = {};     // whose ranks share the runs; null = this process makes all
  std::shared_ptr<FinishedRuns> finished = {};  // of the grids; null: none are kept
  std::function<void(const std::string&)> progress;  // never empty when an item is called

  bool full() const { return scale == "full"; }
  bool medium() const { return scale == "medium"; }
  // `seeds`, or `count` from `seed` on.
  std::vector<uint64_t> seeds_or(uint64_t count) const;
  void validate(const Item& item) const;  // throws std::invalid_argument
};

// What an item found, for a reader.
std::string result_text(const Json& result);

}  // namespace bilevel::reproduce
