#pragma once
// A resumable loop (algorithms/resumable.h) in a run: saved into its folder, stopped where the run is
// interrupted, and resumed only on what it was started with.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bilevel/run/run_context.h"

namespace bilevel {

// `identity`: entries of the checkpoint's metadata that say what the run is on, such as a digest of its data.
template <typename State, typename Hooks>
void keep_in(RunContext& context, Hooks& hooks,
             std::function<void(Checkpoint& checkpoint, const State& state)> put, nlohmann::json identity) {
  hooks.save_seconds = context.save_seconds();
  hooks.interrupted = [&context] { return context.interrupted(); };
  if (!context.has_folder()) return;
  hooks.save = [&context, put = std::move(put), identity = std::move(identity)](const State& state) {
    Checkpoint now;
    put(now, state);
    now.metadata.update(identity);
    context.save(std::move(now));
  };
}

// Throws RunError, "resume = FOLDER: WHAT", unless the checkpoint has the same identity.
void require_identity(const RunContext& context, const Checkpoint& checkpoint, const nlohmann::json& identity,
                      const std::string& what);

}  // namespace bilevel
