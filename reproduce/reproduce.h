#pragma once
// The papers' tables and figures again, our numbers beside theirs. An item is a function that returns what it
// found as JSON; how that is shown is the same for all.
//
//   {"tables": [{"title": ..., "rows": [{column: value, ...}, ...]}, ...],
//    "claims": [{"claim": ..., "holds": true | false, "why": ...}, ...], "notes": [...]}

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/run/json.h"

namespace bilevel::reproduce {

struct ReproduceOptions;

struct Item {
  std::string name;
  std::string summary;
  Json (*run)(const ReproduceOptions&);
  bool searches = false;  // takes `benchmark`, `epochs` and `seeds`
};
const std::vector<Item>& items();
// Throws std::invalid_argument with all names where it is unknown.
const Item& find_item(const std::string& name);

struct ReproduceOptions {
  std::string scale = "quick";  // quick: within 3 minutes on two cores; full: the paper's lengths
  std::string data_dir;         // where data are; what that means is the item's affair
  std::string benchmark;        // the table of trained cells, for the items that search; empty = looked for
  int64_t epochs = 0;           // of every search; 0 = as the scale has them
  std::vector<uint64_t> seeds;  // searches of every setting; empty = as many as the scale has, from `seed` on
  uint64_t seed = 0;
  at::TensorOptions tensors;  // for the items on data; the small ones are in double in any case
  std::string out;            // folder for an item's own files; empty = none are written
  std::function<void(const std::string&)> progress;  // never empty when an item is called

  bool full() const { return scale == "full"; }
  void validate(const Item& item) const;  // throws std::invalid_argument
};

// What an item found, for a reader.
std::string result_text(const Json& result);

}  // namespace bilevel::reproduce
