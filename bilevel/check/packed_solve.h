#pragma once
// What a run came to, as ranks send it to each other.

#include <nlohmann/json.hpp>
#include <vector>

#include "bilevel/algorithms/solve.h"

namespace bilevel {

class ProcessGroup;

using Packed = nlohmann::json;  // as CBOR, which keeps every double, infinities and NaN too

// Without bounds; with points where the record has them.
Packed packed(const SolveRecord& record);
SolveRecord unpacked_record(const Packed& packed);

// Without the states of optimisers, which stay where they were made. Tensors come back on the CPU.
Packed packed(const SolveSummary& summary);
SolveSummary unpacked(const Packed& packed);

// What every rank packed, to every rank, whenever it has come.
std::vector<Packed> exchange_packed(ProcessGroup& group, const Packed& mine);

}  // namespace bilevel
