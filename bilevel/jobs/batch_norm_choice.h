#pragma once
// Which images batch norm sees where ranks divide a batch: the option of `search` and `train`.

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bilevel/fields/fields.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/nas/batch_ranks.h"
#include "bilevel/run/checkpoint.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

template <typename Options>
void add_batch_norm_field(Fields<Options>& f) {
  f.add(
       "batch_norm", [](auto& o) -> auto& { return o.batch_norm; },
       "statistics of batch norm when several processes divide a batch: global = over the whole batch, as in "
       "one process (default on CPUs); rank = over each process's own images (default on GPUs)")
      .one_of({"global", "rank"})
      .by_rule();
}

// A resumed run keeps the norms that it began with, which the rule might choose otherwise for other
// ranks or another device.
inline void keep_batch_norm(OptionsView options, const StoredRun& run) {
  const auto stored = std::find_if(run.effective.begin(), run.effective.end(),
                                   [](const auto& named_words) { return named_words.first == "batch_norm"; });
  const Field& field = options.at("batch_norm");
  if (stored == run.effective.end() || options.is_given(field)) return;
  options.give(field, stored->second);
}

// The ranks of the context; fills in what was left out. Throws OptionError for one process that is to begin
// with the norms of several; one that resumes what several began has the whole batch (and
// warn_of_other_norms says so).
inline nas::BatchRanks batch_ranks(std::string& batch_norm, const at::TensorOptions& tensors,
                                   const RunContext& context) {
  if (batch_norm.empty()) {
    batch_norm = context.has_other_ranks() && !tensors.device().is_cpu() ? "rank" : "global";
  }
  if (batch_norm == "rank" && !context.has_other_ranks() && !context.resumes()) {
    throw OptionError(
        fmt::format("{}: there is only one process, which has the whole batch; start several with `bilevel "
                    "launch`, mpirun, srun or torchrun, or use global",
                    named("batch_norm", "rank")));
  }
  if (!context.has_other_ranks()) return {};  // a group of one computes as one process does, by graphs too
  return nas::divided_among(context.group(), batch_norm == "global");
}

// Warns where other ranks than those of the checkpoint have other norms.
inline void warn_of_other_norms(const std::string& batch_norm, const Checkpoint& checkpoint,
                                const RunContext& context) {
  if (batch_norm != "rank") return;
  const int then = checkpoint.metadata.value("ranks", 1), now = context.group() ? context.group()->size() : 1;
  if (then == now) return;
  context.warning(
      fmt::format("with {} batch norm sees a different part of every batch on {} rank{} than on {}: the "
                  "numbers change by more than rounding",
                  named("batch_norm", "rank"), now, now == 1 ? "" : "s", then));
}

// What the ranks sent each other, beside a result's counts, and for norms apart.
inline void add_communication(const nas::BatchRanks& ranks, Json& json) {
  if (!ranks.group) return;
  const auto numbers = [](const Communication& c) {
    return Json{{"calls", c.calls}, {"bytes", c.bytes}, {"seconds", c.seconds}};
  };
  json["communication"] = {{"ranks", ranks.group->size()}};
  json["communication"].update(numbers(nas::without_norms(ranks)));
  if (ranks.norms) json["communication"]["batch_norm"] = numbers(ranks.norms->sent());
}

}  // namespace bilevel
