#pragma once
// A search's state as a checkpoint and back, bit for bit.

#include <c10/core/Device.h>

#include "bilevel/nas/search.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel::nas {

void put_search(Checkpoint& checkpoint, const SearchState& state);
// Tensors go to `device`. Throws std::runtime_error if it is not a checkpoint of a search in this space.
SearchState search_state(const Checkpoint& checkpoint, const SearchSpace& space, c10::Device device);

// What a search came to, for another process; doubles that are not finite come back as NaN.
nlohmann::json packed_summary(const SearchSummary& summary, const SearchSpace& space);
SearchSummary unpacked_summary(const nlohmann::json& packed, const SearchSpace& space);

// One epoch as JSON, which checkpoints, history files and the program's output share; numbers that are none
// are null.
nlohmann::ordered_json epoch_json(const SearchSpace& space, const EpochRecord& record);

}  // namespace bilevel::nas
