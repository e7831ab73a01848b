#pragma once
// What a run is resumed from, in a checkpoint and out of it again, bit for bit: an algorithm's state, the
// positions of its streams, and what it has cost. Each has its own names in the checkpoint, so that a program
// can put in more of its own beside them.

#include <c10/core/Device.h>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/streams.h"
#include "bilevel/core/oracle.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel {

void put_state(Checkpoint& checkpoint, const AlgorithmState& state);
// Its tensors go to `device`, but for those that were not where x was: they stay on the CPU. Throws
// std::runtime_error naming what is missing or of the wrong kind.
AlgorithmState take_state(const Checkpoint& checkpoint, c10::Device device = c10::kCPU);

void put_streams(Checkpoint& checkpoint, const Streams& streams);
// Moves `streams` to the stored positions. Throws std::runtime_error where they are streams of another seed,
// set or batch size: the batches to come would be others.
void take_streams(const Checkpoint& checkpoint, Streams& streams);

void put_counts(Checkpoint& checkpoint, const OracleCounts& counts);
OracleCounts take_counts(const Checkpoint& checkpoint);  // to be added to those of the new oracle

}  // namespace bilevel
