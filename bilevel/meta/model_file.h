#pragma once
// What was learned, as a file that another program can take up: x with all that is needed to use it on new
// tasks. A checkpoint (run/checkpoint.h) with x cut into its named parts ("embedding", "start", ...).

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/meta/image_tasks.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/table_tasks.h"

namespace bilevel::meta {

struct LearnedModel {
  std::string data;  // what it was learned on
  LearnerOptions learner;
  NetworkOptions network;
  std::vector<int64_t> input;  // shape of one example
  int64_t outputs = 0;         // N
  bool regression = false;
  std::optional<PixelScale> scale;  // of images
  std::optional<RowScale> rows;     // of a table
  int64_t iterations = 0;
  // Above 0: logistic regression on a task's raw inputs, with this penalty, does better than what was
  // learned.
  double raw_penalty = 0;
  Tensor x;

  // For tasks of as many classes. Throws std::invalid_argument where x holds a start of N outputs and they
  // are others.
  Learner make_learner(int64_t ways, const at::TensorOptions& tensors) const;
};

// All of it but x, as JSON, and back with the named parts of x. Throws std::runtime_error for what does not
// fit together.
nlohmann::json learned_json(const LearnedModel& model);
LearnedModel learned_of(const nlohmann::json& json, const std::map<std::string, Tensor>& parts);

void save_model(const std::string& path, const LearnedModel& model);
LearnedModel load_model(const std::string& path);  // throws std::runtime_error naming the file

}  // namespace bilevel::meta
