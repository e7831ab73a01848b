#pragma once
// What a job leaves beside its model's numbers, in model.json, so that new data meet the model as the
// training data did: names of classes and tasks, the columns of tables, the sizes and the scale of pictures.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/table_schema.h"
#include "bilevel/nas/network.h"
#include "bilevel/run/json.h"

namespace bilevel {

struct SavedModel {
  enum class Kind {
    linear,  // model.npy: features x classes, perhaps with the intercept as a last row; one column: numbers
    tasks,   // model.npy: tasks x classes x features, or tasks x features where the classes are the tasks
    cnn,     // model.npy: the flat weights of clean's small network
    network  // the trained weights are in the run's checkpoint
  };
  std::string job = {};
  Kind kind = Kind::linear;
  std::vector<std::string> class_names = {};  // empty: the model predicts numbers
  TableSchema schema = {};                    // of all but a network
  bool has_intercept = false;                 // linear, tasks: behind the features
  std::vector<std::string> task_names = {};   // tasks
  bool classes_are_tasks = false;
  // A network: its cell, and the pictures that it takes.
  std::string space = {}, genotype = {};
  nas::NetworkOptions network = {};
  std::vector<double> mean = {}, std = {};  // of each channel, of bytes
};

Json saved_model_json(const SavedModel& model);
void write_saved_model(const std::string& folder, const SavedModel& model);
// Throws std::runtime_error naming the file for one that is damaged, and OptionError naming the run where it
// has none.
SavedModel read_saved_model(const std::string& folder);

// The same of what saved_model_json made; `path` begins the messages.
SavedModel saved_model_of(const Json& json, const std::string& path);

}  // namespace bilevel
