#pragma once
// `bilevel reproduce`: the papers' tables and figures again, our numbers beside theirs. An item is a function
// that returns what it found as JSON; how that is shown is the same for all.
//
//   {"tables": [{"title": ..., "rows": [{column: value, ...}, ...]}, ...],
//    "claims": [{"claim": ..., "holds": true | false, "why": ...}, ...], "notes": [...]}

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/json.h"

namespace bilevel::cli {

struct ReproduceOptions {
  std::string scale = "quick";  // quick: within 3 minutes on two cores; full: the paper's lengths
  std::string data_dir;         // where data are; what that means is the item's affair
  std::string benchmark;        // the table of trained cells, for the items that search; empty = looked for
  int64_t epochs = 0;           // of every search; 0 = as the scale has them
  std::vector<uint64_t> seeds;  // searches of every setting; empty = as many as the scale has, from `seed` on
  uint64_t seed = 0;
  CommonOptions common;
  at::TensorOptions tensors;  // of --dtype and --device, for the items on data
  std::string out;
  std::function<void(const std::string&)> progress;  // never empty when an item is called

  bool full() const { return scale == "full"; }
};

Json reproduce_krmd_toy(const ReproduceOptions& options);
Json reproduce_krmd_table1(const ReproduceOptions& options);
Json reproduce_krmd_table2(const ReproduceOptions& options);
Json reproduce_krmd_table3(const ReproduceOptions& options);
Json reproduce_krmd_table4(const ReproduceOptions& options);
Json reproduce_krmd_figure5(const ReproduceOptions& options);
Json reproduce_krmd_figure6(const ReproduceOptions& options);
Json reproduce_krmd_figure7(const ReproduceOptions& options);
Json reproduce_fsla_figure1(const ReproduceOptions& options);
Json reproduce_fsla_cleaning(const ReproduceOptions& options);
Json reproduce_fsla_ablation(const ReproduceOptions& options);
Json reproduce_stocbio_cleaning(const ReproduceOptions& options);
Json reproduce_stocbio_figure1(const ReproduceOptions& options);
Json reproduce_stocbio_figure5(const ReproduceOptions& options);
Json reproduce_stocbio_figure6(const ReproduceOptions& options);
Json reproduce_newsgroups(const ReproduceOptions& options);
Json reproduce_idarts_table1(const ReproduceOptions& options);
Json reproduce_idarts_table2(const ReproduceOptions& options);
Json reproduce_idarts_table3(const ReproduceOptions& options);
Json reproduce_idarts_table4(const ReproduceOptions& options);
Json reproduce_idarts_figure1(const ReproduceOptions& options);
Json reproduce_idarts_figure2(const ReproduceOptions& options);
Json reproduce_idarts_figure4(const ReproduceOptions& options);

Json claim(const std::string& text, bool holds, const std::string& why);
Json table(const std::string& title, Json rows);

}  // namespace bilevel::cli
