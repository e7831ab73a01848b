#pragma once
// A learning state as a checkpoint and back, bit for bit.

#include <c10/core/Device.h>

#include "bilevel/meta/learn.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel::meta {

void put_learning(Checkpoint& checkpoint, const LearnState& state);
// Tensors go to `device`. Throws std::runtime_error if it is not a checkpoint of a learner with `outer`
// numbers in x.
LearnState learn_state(const Checkpoint& checkpoint, int64_t outer, c10::Device device);

// One record as JSON, which checkpoints, metrics and the program's output share; numbers that are none are
// null.
nlohmann::ordered_json record_json(const LearnRecord& record);

}  // namespace bilevel::meta
