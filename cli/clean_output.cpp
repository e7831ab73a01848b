#include "cli/clean_output.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "bilevel/clean/suspect_pictures.h"
#include "bilevel/data/write_file.h"

namespace bilevel::cli {
namespace {

constexpr size_t shown_suspects = 10;

struct Example {
  int64_t index, position, given, suggested;  // position: in the named set's training file
  double x, weight;
};

Example example(const CleanOutput& o, int64_t i) {
  return {.index = i,
          .position = o.named ? o.sets.train_index[i].item<int64_t>() : i,
          .given = o.sets.train.labels[i].item<int64_t>(),
          .suggested = o.report.suggested[i].item<int64_t>(),
          .x = o.report.x[i].item<double>(),
          .weight = o.report.weights[i].item<double>()};
}

int64_t label(const CleanOutput& o, int64_t k) { return o.sets.label_values[static_cast<size_t>(k)]; }
const std::string& name(const CleanOutput& o, int64_t k) {
  return o.sets.class_names[static_cast<size_t>(k)];
}
bool truth_known(const CleanOutput& o) { return o.report.wrong.has_value(); }

Json percent(double value) { return value < 0 ? Json(nullptr) : number(value); }

Json model_json(const TrainedModel& model) {
  return {{"test_accuracy", percent(model.test_accuracy)},
          {"valid_accuracy", number(model.valid_accuracy)},
          {"valid_loss", number(model.valid_loss)},
          {"steps", model.steps},
          {"gradient_norm", number(model.gradient_norm)}};
}

Json suspect_json(const CleanOutput& o, int64_t i) {
  const Example e = example(o, i);
  Json out = {{"index", e.index}};
  if (o.named) out["position"] = e.position;
  out["given_label"] = label(o, e.given);
  out["suggested_label"] = label(o, e.suggested);
  out["x"] = number(e.x);
  out["weight"] = number(e.weight);
  return out;
}

// A suspect's line; the truth follows where it is known.
void write_suspects(const CleanOutput& o, std::ostream& out) {
  out << "index," << (o.named ? "position," : "") << "given_label,weight,suggested_label,x"
      << (truth_known(o) ? ",clean_label,wrong,replaced" : "") << '\n';
  for (const int64_t i : o.report.suspects) {
    const Example e = example(o, i);
    out << e.index << ',';
    if (o.named) out << e.position << ',';
    fmt::print(out, "{},{:.6g},{},{:.6g}", label(o, e.given), e.weight, label(o, e.suggested), e.x);
    if (truth_known(o)) {
      fmt::print(out, ",{},{:d},{:d}", label(o, o.sets.clean[i].item<int64_t>()),
                 o.sets.wrong[i].item<bool>(), o.sets.replaced[i].item<bool>());
    }
    out << '\n';
  }
}

void write_weights(const CleanOutput& o, std::ostream& out) {
  out << "index,given_label,weight,x,suggested_label\n";
  for (int64_t i = 0; i < o.sets.train.size(); ++i) {
    const Example e = example(o, i);
    fmt::print(out, "{},{},{:.6g},{:.6g},{}\n", e.index, label(o, e.given), e.weight, e.x,
               label(o, e.suggested));
  }
}

// The noise as it was drawn, so that the job can be checked or repeated with other means.
void write_noise(const CleanOutput& o, std::ostream& out) {
  out << "index,position,clean_label,given_label,replaced,wrong\n";
  for (int64_t i = 0; i < o.sets.train.size(); ++i) {
    fmt::print(out, "{},{},{},{},{:d},{:d}\n", i, o.sets.train_index[i].item<int64_t>(),
               o.sets.clean[i].item<int64_t>(), o.sets.train.labels[i].item<int64_t>(),
               o.sets.replaced[i].item<bool>(), o.sets.wrong[i].item<bool>());
  }
}

std::string percent_text(double value) { return value < 0 ? "-" : fmt::format("{:.2f}", value); }

void print_detection(const char* what, const Detection& d) {
  fmt::print("{:<26}{:>10.3f}{:>11.3f}{:>9.3f}   {} flagged, {} bad, {} both\n", what, d.f1(), d.precision(),
             d.recall(), d.flagged, d.bad, d.both);
}

}  // namespace

Json clean_json(const CleanOutput& o) {
  const CleanReport& r = o.report;
  Json out = {{"data", o.data},
              {"model", o.model},
              {"algorithm", r.solve.algorithm},
              {"train_examples", o.sets.train.size()},
              {"valid_examples", o.sets.valid.size()},
              {"test_examples", o.sets.test.size()},
              {"classes", o.sets.classes},
              {"test_accuracy", percent(r.cleaned.test_accuracy)},
              {"valid_accuracy", number(r.cleaned.valid_accuracy)},
              {"valid_loss", number(r.cleaned.valid_loss)},
              {"baseline_test_accuracy", percent(r.baseline.test_accuracy)},
              {"baseline_valid_accuracy", number(r.baseline.valid_accuracy)},
              {"baseline_valid_loss", number(r.baseline.valid_loss)},
              {"returned", r.kept_baseline ? "baseline" : "learned"},
              {"learned_valid_loss", number(r.learned_valid_loss)},
              {"best_iteration", r.best_iteration},
              {"threshold", o.options.threshold},
              {"flagged", r.flagged}};
  for (const auto& [suffix, detection] : {std::pair{"", r.wrong}, std::pair{"_replaced", r.replaced}}) {
    if (!detection) continue;
    out[std::string("f1") + suffix] = detection->f1();
    out[std::string("precision") + suffix] = detection->precision();
    out[std::string("recall") + suffix] = detection->recall();
  }
  out["inner"] = {{"optimizer", o.options.settings.inner.optimizer},
                  {"steps", o.options.settings.inner.steps},
                  {"rate", o.options.settings.inner.rate},
                  {"gradient_norm", number(r.inner_gradient_norm)},
                  {"first_gradient_norm", number(r.first_gradient_norm)}};
  add_choice(o.automatic, out);
  out["final_training"] = model_json(r.cleaned);
  out["baseline_training"] = model_json(r.baseline);
  out["counts"] = counts_json(r.counts);
  out["seconds"] = o.seconds;
  out["solve"] = solve_json(r.solve);
  out["most_suspect"] = Json::array();
  for (size_t i = 0; i < std::min(shown_suspects, r.suspects.size()); ++i) {
    out["most_suspect"].push_back(suspect_json(o, r.suspects[i]));
  }
  out["warnings"] = r.warnings;
  out["folder"] = o.folder;
  return out;
}

void print_clean(const CleanOutput& o) {
  const CleanReport& r = o.report;
  fmt::print("{}: {} training, {} validation and {} test examples, {} features, {} classes\n", o.data,
             o.sets.train.size(), o.sets.valid.size(), o.sets.test.size(), o.sets.train.features.columns(),
             o.sets.classes);
  const InnerOptions& inner = o.options.settings.inner;
  fmt::print(
      "{}, {} model: {} iterations of {} {} steps at rate {:.4g}, ending at |grad_w g| = {:.2e} of {:.2e} "
      "at the start\n\n",
      r.solve.algorithm, o.model, r.solve.state.iteration, inner.steps, inner.optimizer, inner.rate,
      r.inner_gradient_norm, r.first_gradient_norm);
  fmt::print("{:<26}{:>10}{:>11}{:>13}{:>9}\n", "trained on", "test %", "valid %", "valid loss", "steps");
  for (const auto& [what, model] :
       {std::pair{r.kept_baseline ? "returned: the baseline" : "the learned weights", &r.cleaned},
        std::pair{"all labels alike", &r.baseline}}) {
    fmt::print("{:<26}{:>10}{:>11.2f}{:>13.4f}{:>9}\n", what, percent_text(model->test_accuracy),
               model->valid_accuracy, model->valid_loss, model->steps);
  }
  fmt::print("\n");
  if (truth_known(o)) {
    fmt::print("{:<26}{:>10}{:>11}{:>9}\n", fmt::format("x < {}", o.options.threshold), "F1", "precision",
               "recall");
    print_detection("labels that are wrong", *r.wrong);
    print_detection("labels that were replaced", *r.replaced);
    fmt::print("\n");
  }
  fmt::print("{} of {} examples are suspect (x < {}, weight < {:.3f})\n", r.flagged, o.sets.train.size(),
             o.options.threshold, 1 / (1 + std::exp(-o.options.threshold)));
  if (!r.suspects.empty()) {
    fmt::print("{:>9}{:>16}{:>16}{:>10}{:>9}\n", "index", "given label", "suggested", "weight", "x");
  }
  for (size_t i = 0; i < std::min(shown_suspects, r.suspects.size()); ++i) {
    const Example e = example(o, r.suspects[i]);
    fmt::print("{:>9}{:>16}{:>16}{:>10.2g}{:>9.2f}\n", e.index, name(o, e.given), name(o, e.suggested),
               e.weight, e.x);
  }
  const OracleCounts& c = r.counts;
  fmt::print("\n{} gradients of g, {} of f, {} Hessian and {} cross products; {:.1f} s in all\n",
             c.inner_gradient, c.outer_gradient, c.hessian, c.cross, o.seconds);
}

void write_clean(const CleanOutput& o) {
  write_file(o.folder + "/weights.csv", [&](std::ostream& out) { write_weights(o, out); });
  write_file(o.folder + "/suspects.csv", [&](std::ostream& out) { write_suspects(o, out); });
  if (o.named) write_file(o.folder + "/noise.csv", [&](std::ostream& out) { write_noise(o, out); });
  write_suspect_pictures(o.sets, o.report, o.folder);
}

}  // namespace bilevel::cli
