#pragma once
// The kinds of models that `predict` knows; each fills in rows or files, and probabilities.

#include <string>

#include "bilevel/export/exported_model.h"
#include "bilevel/jobs/predict.h"
#include "bilevel/jobs/saved_model.h"

namespace bilevel {

// A run's folder, or a file that export made of one.
struct ModelInUse {
  SavedModel saved = {};
  ExportedModel file = {};  // without arrays for a folder
  bool is_file = false;
};

void predict_table(const PredictJobOptions& options, const ModelInUse& model, PredictJobResult& result);
void predict_pictures(const PredictJobOptions& options, const ModelInUse& model,
                      const at::TensorOptions& tensors, RunContext& context, PredictJobResult& result);
// By a run of learn, or its export.
void predict_few_shot(const PredictJobOptions& options, RunContext& context, PredictJobResult& result);

std::string predictions_table(const PredictJobResult& result);  // as CSV

}  // namespace bilevel
