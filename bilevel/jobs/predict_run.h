#pragma once
// The kinds of models that `predict` knows; each fills in rows or files, and probabilities.

#include "bilevel/jobs/predict.h"
#include "bilevel/jobs/saved_model.h"

namespace bilevel {

void predict_table(const PredictJobOptions& options, const SavedModel& model, PredictJobResult& result);
void predict_pictures(const PredictJobOptions& options, const SavedModel& model,
                      const at::TensorOptions& tensors, RunContext& context, PredictJobResult& result);
// By a run of learn.
void predict_few_shot(const PredictJobOptions& options, RunContext& context, PredictJobResult& result);

std::string predictions_table(const PredictJobResult& result);  // as CSV

}  // namespace bilevel
