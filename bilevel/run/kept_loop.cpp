#include "bilevel/run/kept_loop.h"

#include <fmt/format.h>

#include "bilevel/fields/option_text.h"

namespace bilevel {

void require_identity(const RunContext& context, const Checkpoint& checkpoint, const nlohmann::json& identity,
                      const std::string& what) {
  for (const auto& [name, now] : identity.items()) {
    const auto then = checkpoint.metadata.find(name);
    if (then != checkpoint.metadata.end() && *then == now) continue;
    throw RunError(fmt::format("{}: {}", named("resume", context.place().resume), what));
  }
}

}  // namespace bilevel
