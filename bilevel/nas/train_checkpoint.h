#pragma once
// A training's state in a checkpoint and out of it again, bit for bit. A program can put in more of its own
// beside it, such as what was trained on what. Needs nlohmann-json where it is included.

#include "bilevel/nas/train.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel::nas {

void put_training(Checkpoint& checkpoint, const TrainState& state);
// Onto the device and dtype of `training`. Throws std::runtime_error naming what is missing or of another
// size: a checkpoint of another network, or another schedule.
TrainState take_training(const Checkpoint& checkpoint, const Training& training);

nlohmann::ordered_json epoch_json(const TrainEpoch& record);

}  // namespace bilevel::nas
