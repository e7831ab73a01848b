#include "cli/interact_output.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "bilevel/report/heat_map.h"

namespace bilevel::cli {
namespace {

constexpr int64_t most_tasks_in_text = 24;  // wider matrices do not fit a terminal

void add_scores(Json& json, const std::string& prefix, const LearnedTasks* from) {
  const auto value = [&](double of) { return from == nullptr || of < 0 ? Json(nullptr) : number(of); };
  const LearnedTasks none;
  const LearnedTasks& l = from == nullptr ? none : *from;
  json[prefix + "test_accuracy"] = value(l.test_accuracy);
  json[prefix + "test_loss"] = value(l.test_loss);
  json[prefix + "valid_accuracy"] = value(l.valid_accuracy);
  json[prefix + "valid_loss"] = value(l.valid_loss);
  json[prefix + "train_accuracy"] = value(l.train_accuracy);
  json[prefix + "rho"] = value(l.regularizer);
  json[prefix + "best_iteration"] = from == nullptr ? Json(nullptr) : Json(l.best_iteration);
}

// By their names, the tasks of each cluster.
Json named_clusters(const std::vector<int64_t>& cluster, const std::vector<std::string>& names) {
  Json result = Json::array();
  for (size_t task = 0; task < cluster.size(); ++task) {
    const auto at = static_cast<size_t>(cluster[task]);
    while (result.size() <= at) result.push_back(Json::array());
    result[at].push_back(names[task]);
  }
  return result;
}

Json rows_of(const Tensor& matrix) {
  const Tensor values = matrix.cpu().to(at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  Json rows = Json::array();
  for (int64_t i = 0; i < values.size(0); ++i) {
    rows.push_back(std::vector<double>(value + i * values.size(1), value + (i + 1) * values.size(1)));
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

std::string percent(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:.2f}", value.get<double>());
}

}  // namespace

Json interact_json(const InteractOutput& o) {
  const TaskSets& sets = o.sets;
  const InteractReport& r = o.report;
  Json json = {{"data", o.data},
               {"tasks", sets.tasks},
               {"classes", sets.classes},
               {"classes_are_tasks", sets.classes_are_tasks},
               {"features", sets.train.features.size(1)},
               {"train_examples", sets.train.size()},
               {"valid_examples", sets.valid.size()},
               {"test_examples", sets.test.size()},
               {"task_names", sets.task_names}};
  add_scores(json, "", &r.learned);
  add_scores(json, "independent_", r.independent ? &*r.independent : nullptr);
  add_scores(json, "pooled_", r.pooled ? &*r.pooled : nullptr);
  json["returned"] = name_of(r.best);
  json["interaction"] = rows_of(r.learned.interaction);
  const std::vector<int64_t> suggested = suggest_clusters(r.learned.interaction);
  json["suggested_clusters"] = named_clusters(suggested, sets.task_names);
  if (!sets.clusters.empty()) {
    const ClusterMeans means = cluster_means(r.learned.interaction, sets.clusters);
    json["true_clusters"] = named_clusters(sets.clusters, sets.task_names);
    json["within_clusters"] = number(means.within);
    json["across_clusters"] = number(means.across);
    json["rand_index"] = rand_index(suggested, sets.clusters);
  }
  json["inner_rate"] = r.learned.inner_rate;
  json.update(solve_json(r.learned.summary));
  thin_history(json["history"], o.records);
  if (!r.warnings.empty()) json["warnings"] = r.warnings;
  return json;
}

void print_interact(const Json& r) {
  fmt::print("{} tasks{} on {}; {} features, {} classes; {} training, {} validation and {} test examples\n",
             r.at("tasks").get<int64_t>(), r.at("classes_are_tasks").get<bool>() ? " (the classes)" : "",
             r.at("data").get<std::string>(), r.at("features").get<int64_t>(), r.at("classes").get<int64_t>(),
             r.at("train_examples").get<int64_t>(), r.at("valid_examples").get<int64_t>(),
             r.at("test_examples").get<int64_t>());
  fmt::print("{}: {} iterations in {:.1f} s, the best at {}; inner rate {:.4g}\n\n",
             r.at("algorithm").get<std::string>(), r.at("iterations").get<int64_t>(),
             r.at("seconds").get<double>(), r.at("best_iteration").get<int64_t>(),
             r.at("inner_rate").get<double>());
  fmt::print("{:<22}{:>14}{:>14}{:>14}{:>14}{:>12}\n", "accuracy in percent", "test", "validation",
             "training", "valid. loss", "rho");
  for (const auto& [prefix, name] :
       {std::pair{"", "learned interaction"}, std::pair{"independent_", "independent"},
        std::pair{"pooled_", "one model for all"}}) {
    const auto at = [&, p = std::string(prefix)](const char* what) { return r.at(p + what); };
    if (at("valid_loss").is_null()) continue;
    fmt::print("{:<22}{:>14}{:>14}{:>14}{:>14.4f}{:>12.3g}\n", name, percent(at("test_accuracy")),
               percent(at("valid_accuracy")), percent(at("train_accuracy")), at("valid_loss").get<double>(),
               at("rho").get<double>());
  }
  if (r.at("tasks").get<int64_t>() <= most_tasks_in_text) {
    fmt::print("\ninteraction\n{:>10}", "");
    for (const Json& name : r.at("task_names")) fmt::print("{:>8}", name.get<std::string>().substr(0, 7));
    fmt::print("\n");
    for (size_t i = 0; i < r.at("task_names").size(); ++i) {
      fmt::print("{:>10}", r.at("task_names")[i].get<std::string>().substr(0, 9));
      for (size_t j = 0; j < r.at("interaction")[i].size(); ++j) {
        fmt::print("{:>8}", i == j ? "-" : fmt::format("{:.2g}", r.at("interaction")[i][j].get<double>()));
      }
      fmt::print("\n");
    }
  }
  fmt::print("\nsuggested clusters:");
  for (const Json& cluster : r.at("suggested_clusters")) {
    fmt::print(" {{{}}}", fmt::join(cluster.get<std::vector<std::string>>(), " "));
  }
  fmt::print("\n");
  if (r.contains("true_clusters")) {
    const auto mean = [&](const char* of) {
      return r.at(of).is_null() ? std::string("-") : fmt::format("{:.3g}", r.at(of).get<double>());
    };
    fmt::print(
        "mean interaction within the true clusters {}, across them {}; the suggested ones agree on "
        "{:.1f} % of the pairs\n",
        mean("within_clusters"), mean("across_clusters"), r.at("rand_index").get<double>());
  }
}

std::vector<std::string> write_interact(const InteractOutput& o, const Json& json,
                                        const std::string& folder) {
  const LearnedTasks& learned = o.report.learned;
  const std::vector<std::string>& names = o.sets.task_names;
  std::vector<std::string> written{"interaction.npy", "interaction.csv", "model.npy"};
  write_npy(folder + "/interaction.npy", learned.interaction);
  // One model for all is that of every task.
  const Tensor& w = o.report.returned().w;
  const int64_t models = o.report.best == InteractReport::Best::pooled ? 1 : o.sets.tasks;
  write_npy(
      folder + "/model.npy",
      o.sets.classes_are_tasks
          ? w.view({o.sets.tasks, -1})
          : w.view({models, o.sets.classes, -1}).expand({o.sets.tasks, o.sets.classes, -1}).contiguous());
  write_file(folder + "/interaction.csv", [&](std::ostream& to) {
    to << "task," << fmt::format("{}", fmt::join(names, ",")) << '\n';
    for (size_t i = 0; i < names.size(); ++i) {
      to << names[i];
      for (const Json& value : json.at("interaction")[i]) to << fmt::format(",{:.9g}", value.get<double>());
      to << '\n';
    }
  });
  // The diagonal couples a task to itself, which is nothing.
  const Tensor shown = learned.interaction.clone().fill_diagonal_(0);
  if (const std::string picture = heat_map(shown, names, "interaction of the tasks"); !picture.empty()) {
    write_file(folder + "/interaction.svg", picture);
    written.emplace_back("interaction.svg");
  }
  return written;
}

}  // namespace bilevel::cli
