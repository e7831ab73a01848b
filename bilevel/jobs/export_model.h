#pragma once
// Models of runs as arrays with names and a function (export/exported_model.h), and back.

#include <map>
#include <string>

#include "bilevel/core/tensor.h"
#include "bilevel/export/exported_model.h"
#include "bilevel/jobs/saved_model.h"
#include "bilevel/meta/model_file.h"

namespace bilevel {

// The numbers of a run of train: weights and running statistics, each flat.
struct TrainedWeights {
  Tensor w, statistics;
};
// Throws std::runtime_error where the checkpoint is of another network.
TrainedWeights trained_weights(const std::string& run, const nas::Network& network);

// Of the run's folder.
ExportedModel exported_model(const std::string& run, const SavedModel& model);
ExportedModel exported_learned(const meta::LearnedModel& model);

// Whether a model is a file that export wrote, not the folder of a run.
bool is_exported_file(const std::string& run);

// The numbers of a model in a file as the run's folder has them: model.npy of clean, tune and interact, the
// checkpoint of train, the model of learn. Throws std::runtime_error naming the file and the array.
Tensor weights_of(const ExportedModel& file, const SavedModel& model, const std::string& path);
TrainedWeights trained_weights_of(const ExportedModel& file, const nas::Network& network,
                                  const std::string& path);
meta::LearnedModel learned_of(const ExportedModel& file, const std::string& path);

}  // namespace bilevel
