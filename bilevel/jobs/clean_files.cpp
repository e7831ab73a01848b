// What a cleaning job leaves in its folder.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <ostream>

#include "bilevel/clean/suspect_pictures.h"
#include "bilevel/data/csv_line.h"
#include "bilevel/data/write_file.h"
#include "bilevel/jobs/clean_run.h"

namespace bilevel {

std::string label_field(const CleaningSets& sets, int64_t k) {
  const auto at = static_cast<size_t>(k);
  return sets.has_names ? csv_quoted(sets.class_names[at]) : fmt::format("{}", sets.label_values[at]);
}

SavedModel saved_cleaning(const CleaningSets& sets, SavedModel::Kind kind, bool has_intercept) {
  SavedModel model{.job = "clean", .kind = kind, .class_names = sets.class_names};
  model.schema = sets.schema;
  model.has_intercept = has_intercept;
  return model;
}

namespace {

std::string label_in_file(const CleaningSets& sets, const Tensor& classes, int64_t i) {
  return label_field(sets, classes[i].item<int64_t>());
}

// A suspect's line; the truth follows where it is known.
void write_suspects(const CleaningSets& sets, const CleanResult& result, std::ostream& out) {
  const bool drawn = noise_was_drawn(sets), known = result.wrong.has_value();
  out << "index," << (drawn ? "position," : "") << "given_label,weight,suggested_label,x"
      << (known ? ",clean_label,wrong,replaced" : "") << '\n';
  for (const int64_t i : result.suspects) {
    out << row_in_file(sets.train_rows, i) << ',';
    if (drawn) out << sets.train_index[i].item<int64_t>() << ',';
    fmt::print(out, "{},{:.6g},{},{:.6g}", label_in_file(sets, sets.train.labels, i),
               result.weights[i].item<double>(), label_in_file(sets, result.suggested, i),
               result.x[i].item<double>());
    if (known) {
      fmt::print(out, ",{},{:d},{:d}", label_in_file(sets, sets.clean, i), sets.wrong[i].item<bool>(),
                 sets.replaced[i].item<bool>());
    }
    out << '\n';
  }
}

void write_weights(const CleaningSets& sets, const CleanResult& result, std::ostream& out) {
  out << "index,given_label,weight,x,suggested_label\n";
  for (int64_t i = 0; i < sets.train.size(); ++i) {
    fmt::print(out, "{},{},{:.6g},{:.6g},{}\n", row_in_file(sets.train_rows, i),
               label_in_file(sets, sets.train.labels, i), result.weights[i].item<double>(),
               result.x[i].item<double>(), label_in_file(sets, result.suggested, i));
  }
}

// The noise as it was drawn, so that the job can be checked or repeated with other means.
void write_noise(const CleaningSets& sets, std::ostream& out) {
  out << "index,position,clean_label,given_label,replaced,wrong\n";
  for (int64_t i = 0; i < sets.train.size(); ++i) {
    fmt::print(out, "{},{},{},{},{:d},{:d}\n", i, sets.train_index[i].item<int64_t>(),
               sets.clean[i].item<int64_t>(), sets.train.labels[i].item<int64_t>(),
               sets.replaced[i].item<bool>(), sets.wrong[i].item<bool>());
  }
}

}  // namespace

std::vector<std::string> write_clean_files(const CleaningSets& sets, const CleanResult& result,
                                           const std::string& folder) {
  std::vector<std::string> names{"weights.csv", "suspects.csv"};
  write_file(folder + "/weights.csv", [&](std::ostream& out) { write_weights(sets, result, out); });
  write_file(folder + "/suspects.csv", [&](std::ostream& out) { write_suspects(sets, result, out); });
  if (noise_was_drawn(sets)) {
    write_file(folder + "/noise.csv", [&](std::ostream& out) { write_noise(sets, out); });
    names.emplace_back("noise.csv");
  }
  write_suspect_pictures(sets, result, folder);
  return names;
}

}  // namespace bilevel
