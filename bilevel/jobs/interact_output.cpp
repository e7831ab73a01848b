// What the job `interact` hands back as JSON and in files.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "bilevel/data/csv_line.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/jobs/interact_run.h"
#include "bilevel/jobs/saved_model.h"
#include "bilevel/report/heat_map.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

void add_task_scores(Json& json, const std::string& prefix, const LearnedTasks* from, bool by_algorithm) {
  const auto value = [&](double of) { return from == nullptr || of < 0 ? Json(nullptr) : number(of); };
  const LearnedTasks none;
  const LearnedTasks& l = from == nullptr ? none : *from;
  json[prefix + "test_accuracy"] = value(l.test_accuracy);
  json[prefix + "test_loss"] = value(l.test_loss);
  json[prefix + "valid_accuracy"] = value(l.valid_accuracy);
  json[prefix + "valid_loss"] = value(l.valid_loss);
  json[prefix + "train_accuracy"] = value(l.train_accuracy);
  json[prefix + "rho"] = value(l.regularizer);
  if (by_algorithm) {
    json[prefix + "best_iteration"] = from == nullptr ? Json(nullptr) : Json(l.best_iteration);
  }
}

std::vector<std::vector<double>> rows_of_matrix(const Tensor& matrix) {
  const Tensor values = matrix.cpu().to(at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < values.size(0); ++i) {
    rows.emplace_back(value + i * values.size(1), value + (i + 1) * values.size(1));
  }
  return rows;
}

// Every iteration has a record; a reader wants some of them, and the last.
void thin_history(Json& history, int64_t records) {
  const size_t every =
      std::max<size_t>(1, history.size() / static_cast<size_t>(std::max<int64_t>(records, 1)));
  Json kept = Json::array();
  for (size_t i = 0; i < history.size(); ++i) {
    if (i % every == 0 || i + 1 == history.size()) kept.push_back(history[i]);
  }
  history = kept;
}

void add_held_out(const InteractJobResult& o, const InteractJobOptions& options, Json& json) {
  const InteractTableResult& r = *o.table;
  json["coupling"] = r.per_pair ? "per_pair" : "common";
  json["averaged_models"] = r.averaged;
  json["gain"] = r.searched_pairs ? number(r.gain) : Json();
  json["gain_error"] = r.searched_pairs ? number(r.gain_error) : Json();
  json["folds"] = o.folds == 0 ? Json(nullptr) : Json(o.folds);
  json["standardized"] = !options.table.no_standardize;
  json["counts"] = {{"fits", r.counts.fits},
                    {"newton_steps", r.counts.gradients},
                    {"outer_gradient", r.outer_gradients},
                    {"hessian", r.counts.hessian_products},
                    {"unconverged_fits", r.counts.unconverged},
                    {"unsolved_systems", r.counts.unsolved}};
  json["seconds"] = o.seconds;
}

}  // namespace

std::vector<std::vector<std::string>> named_clusters(const std::vector<int64_t>& cluster,
                                                     const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> result;
  for (size_t task = 0; task < cluster.size(); ++task) {
    const auto at = static_cast<size_t>(cluster[task]);
    if (result.size() <= at) result.resize(at + 1);
    result[at].push_back(names[task]);
  }
  return result;
}

Json interact_json(const InteractJobResult& o, const InteractJobOptions& options) {
  const TaskSets& sets = o.sets;
  const InteractResult& r = o.interact;
  Json json = {{"by", o.by},
               {"data", o.data},
               {"tasks", sets.tasks},
               {"classes", sets.classes},
               {"classes_are_tasks", sets.classes_are_tasks},
               {"features", sets.train.features.size(1)},
               {"train_examples", sets.train.size()},
               {"valid_examples", sets.valid.size()},
               {"test_examples", sets.test.size()},
               {"task_names", sets.task_names}};
  if (!sets.class_names.empty()) json["class_names"] = sets.class_names;
  add_task_scores(json, "", &r.learned, !o.table);
  add_task_scores(json, "independent_", r.independent ? &*r.independent : nullptr, !o.table);
  add_task_scores(json, "pooled_", r.pooled ? &*r.pooled : nullptr, !o.table);
  json["returned"] = name_of(r.best);
  json["interaction"] = rows_of_matrix(r.learned.interaction);
  json["suggested_clusters"] = named_clusters(o.suggested, sets.task_names);
  if (o.means) {
    json["true_clusters"] = named_clusters(sets.clusters, sets.task_names);
    json["within_clusters"] = number(o.means->within);
    json["across_clusters"] = number(o.means->across);
    json["rand_index"] = o.rand_index;
  }
  if (o.table) {
    add_held_out(o, options, json);
  } else {
    json["inner_rate"] = r.learned.inner_rate;
    json.update(solve_json(r.learned.summary));
    thin_history(json["history"], options.algorithm.solve.records);
  }
  if (!r.warnings.empty()) json["warnings"] = r.warnings;
  return json;
}

bool write_interact_files(const InteractJobResult& o) {
  const LearnedTasks& learned = o.interact.learned;
  const std::vector<std::string>& names = o.sets.task_names;
  write_npy(o.folder + "/interaction.npy", learned.interaction);
  // One model for all is that of every task.
  const Tensor& w = o.interact.returned().w;
  const int64_t models = o.interact.best == InteractResult::Best::pooled && !o.table ? 1 : o.sets.tasks;
  write_npy(
      o.folder + "/model.npy",
      o.sets.classes_are_tasks
          ? w.view({o.sets.tasks, -1})
          : w.view({models, o.sets.classes, -1}).expand({o.sets.tasks, o.sets.classes, -1}).contiguous());
  if (o.schema.features() > 0) {  // made-up tasks have no files whose like could come
    SavedModel model{.job = "interact", .kind = SavedModel::Kind::tasks, .class_names = o.sets.class_names};
    model.schema = o.schema;
    model.has_intercept = o.has_bias;
    model.task_names = names;
    model.classes_are_tasks = o.sets.classes_are_tasks;
    write_saved_model(o.folder, model);
  }
  write_file(o.folder + "/interaction.csv", [&](std::ostream& to) {
    to << "task";
    for (const std::string& name : names) to << ',' << csv_quoted(name);
    to << '\n';
    const std::vector<std::vector<double>> rows = rows_of_matrix(learned.interaction);
    for (size_t i = 0; i < names.size(); ++i) {
      to << csv_quoted(names[i]);
      for (const double value : rows[i]) to << fmt::format(",{:.9g}", value);
      to << '\n';
    }
  });
  // The diagonal couples a task to itself, which is nothing.
  const Tensor shown = learned.interaction.clone().fill_diagonal_(0);
  const std::string picture = heat_map(shown, names, "interaction of the tasks");
  if (!picture.empty()) write_file(o.folder + "/interaction.svg", picture);
  return !picture.empty();
}

}  // namespace bilevel
