// A search's page: the cell it found, alpha by epoch, and the true accuracies where a table was given; and
// that of a training, which has the cell alone.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "bilevel/data/byte_source.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/guards/guard.h"
#include "bilevel/report/curves.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"
#include "bilevel/report/plot.h"

namespace bilevel {
namespace {

using html::escaped;

constexpr size_t most_columns = 50;  // of a heat map: epochs in between are left out

// Which edge or node a row of alpha is for. NAS-Bench-201 and DARTS number edges by the node they lead to.
std::string row_name(const nas::SearchSpace& space, const nas::AlphaBlock& block, int64_t row) {
  const int64_t inputs = space.kind == nas::SpaceKind::darts ? 2 : 1;
  if (space.kind != nas::SpaceKind::nasbench1shot1 && !block.shares) {
    int64_t left = row;
    for (int64_t node = inputs; node < inputs + 16; ++node) {
      if (left < node) {
        return fmt::format("{}{} \u2192 {}", space.kind == nas::SpaceKind::darts ? block.name + ": " : "",
                           left, node);
      }
      left -= node;
    }
  }
  return block.rows > 1 ? fmt::format("{}, row {}", block.name, row) : block.name;
}

std::vector<std::string> choice_names(const nas::SearchSpace& space, const nas::AlphaBlock& block) {
  const bool of_operations =
      !block.shares && (space.kind != nas::SpaceKind::nasbench1shot1 || block.name == "operations");
  if (of_operations) return space.operations;
  std::vector<std::string> names;
  for (int64_t i = 0; i < block.choices; ++i) names.push_back(fmt::format("from {}", i));
  return names;
}

nas::SearchSpace space_of(const RunData& run) {
  std::string name = text_in(run.summary, "space");
  if (name.empty()) name = run.effective("space");
  std::vector<std::string> operations;
  if (const auto found = run.summary.find("operations"); found != run.summary.end() && found->is_array()) {
    for (const Json& one : *found) {
      if (one.is_string()) operations.push_back(one.get<std::string>());
    }
  }
  nas::SearchSpace space = nas::make_space(name.empty() ? "nasbench201" : name, operations);
  const nas::GuardOptions guard{run.effective("guard"),
                                std::strtod(run.effective("guard_strength").c_str(), nullptr)};
  return guard.partial() > 1 ? nas::with_input_shares(std::move(space)) : space;
}

struct AlphaByEpoch {
  std::vector<std::string> epochs;
  std::vector<std::vector<double>> alpha;
};

AlphaByEpoch alpha_by_epoch(const RunData& run, int64_t size) {
  AlphaByEpoch all;
  for (const Json& line : run.metrics.lines) {
    const auto alpha = line.find("alpha");
    if (alpha == line.end() || !alpha->is_array() || static_cast<int64_t>(alpha->size()) != size) continue;
    if (!std::all_of(alpha->begin(), alpha->end(), [](const Json& one) { return one.is_number(); })) continue;
    all.alpha.push_back(alpha->get<std::vector<double>>());
    all.epochs.push_back(fmt::format("{}", number_in(line, "epoch").value_or(0)));
  }
  if (all.epochs.size() <= most_columns) return all;
  AlphaByEpoch some;
  for (size_t i = 0; i < most_columns; ++i) {
    const size_t at = i * (all.epochs.size() - 1) / (most_columns - 1);
    some.epochs.push_back(all.epochs[at]);
    some.alpha.push_back(all.alpha[at]);
  }
  return some;
}

std::string alpha_html(const RunData& run) {
  const nas::SearchSpace space = space_of(run);
  const AlphaByEpoch by_epoch = alpha_by_epoch(run, space.alpha_size());
  if (by_epoch.epochs.empty()) return html::note("No alpha has been recorded.");
  if (!can_plot()) return html::note("No heat maps of alpha: " + plot_package() + ".");
  std::vector<HeatMap> maps;
  std::vector<std::string> titles;
  double high = 0;
  size_t offset = 0;
  for (const nas::AlphaBlock& block : space.alpha) {
    for (int64_t row = 0; row < block.rows; ++row) {
      const auto choices = static_cast<size_t>(block.choices);
      HeatMap map{
          .values = std::vector<std::vector<double>>(choices, std::vector<double>(by_epoch.epochs.size())),
          .row_names = choice_names(space, block),
          .column_names = by_epoch.epochs,
          .x_label = "epoch"};
      for (size_t e = 0; e < by_epoch.epochs.size(); ++e) {
        const double* alpha = by_epoch.alpha[e].data() + offset;
        const double top = *std::max_element(alpha, alpha + choices);
        double sum = 0;
        for (size_t c = 0; c < choices; ++c) sum += std::exp(alpha[c] - top);
        for (size_t c = 0; c < choices; ++c) {
          map.values[c][e] = std::exp(alpha[c] - top) / sum;
          high = std::max(high, map.values[c][e]);
        }
      }
      maps.push_back(std::move(map));
      titles.push_back(row_name(space, block, row));
      offset += choices;
    }
  }
  double low = high;
  for (const HeatMap& map : maps) {
    for (const auto& row : map.values) low = std::min(low, *std::min_element(row.begin(), row.end()));
  }
  std::vector<std::string> scripts;
  for (HeatMap& map : maps) {
    map.low = low;
    map.high = high;
    scripts.push_back(plot_script(map));
  }
  const std::vector<std::string> drawn = draw_plots(scripts);
  std::string out =
      "<p>The weight of every operation on every edge, softmax of alpha, from the first epoch to the last; "
      "all maps share one scale.</p>\n" +
      heat_scale_html(low, high) + "<div class=\"grid\">\n";
  for (size_t i = 0; i < maps.size(); ++i) {
    size_t best = 0;
    for (size_t c = 1; c < maps[i].values.size(); ++c) {
      if (maps[i].values[c].back() > maps[i].values[best].back()) best = c;
    }
    const std::string strongest = fmt::format("Strongest at the end: {} ({:.3f})", maps[i].row_names[best],
                                              maps[i].values[best].back());
    out += fmt::format(
        "<figure class=\"card heat\"><h3>{}</h3>\n{}\n<figcaption>{}</figcaption></figure>\n",
        escaped(titles[i]),
        drawn[i].empty()
            ? html::note("This map could not be drawn.")
            : html::image("image/svg+xml", drawn[i],
                          fmt::format("Weights of the operations on {} by epoch. {}.", titles[i], strongest)),
        escaped(strongest));
  }
  return out + "</div>\n";
}

// "cifar10_test" as a row and a column of the table.
std::string truth_html(const RunData& run) {
  const auto values = run.summary.find("benchmark");
  if (values == run.summary.end() || !values->is_object()) {
    const std::string note = text_in(run.summary, "benchmark_note");
    return note.empty() ? "" : html::note(note);
  }
  const Json regret = run.summary.value("regret", Json::object());
  html::Table table{.head = {"trained and tested on", "accuracy", "short of the best"},
                    .rows = {},
                    .caption = {},
                    .numbers = true};
  for (const auto& [name, value] : values->items()) {
    if (!value.is_number() || !is_accuracy_of_table(name)) continue;
    const auto short_of = number_in(regret, name);
    table.rows.push_back({escaped(title_of(name)), html::percent_text(value.get<double>()),
                          short_of ? fmt::format("{:.2f} points", *short_of) : "\u2013"});
  }
  if (table.rows.empty()) return "";
  return "<p>The chosen cell in the benchmark's table, trained in full.</p>\n" + html::table(table);
}

// The genotype as text and its space, of the files or of the last record.
std::pair<std::string, std::string> genotype_of(const RunData& run) {
  std::string text = text_in(run.summary, "genotype");
  for (auto line = run.metrics.lines.rbegin(); text.empty() && line != run.metrics.lines.rend(); ++line) {
    text = text_in(*line, "genotype");
  }
  std::string space = text_in(run.summary, "space");
  if (space.empty()) space = run.effective("space");
  const std::string path = run.facts.folder + "/genotype.json";
  if (text.empty() && std::filesystem::exists(path)) {
    text = read_file(path, 1 << 20);
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && !text_in(json, "space").empty()) space = text_in(json, "space");
  }
  return {space.empty() ? "nasbench201" : space, text};
}

void add_cells(const RunData& run, JobReport& job, const char* title) {
  const auto [space, genotype] = genotype_of(run);
  if (genotype.empty()) return;
  job.sections.push_back({.id = "cells", .title = title, .content = cells_html(space, genotype)});
}

// The table's columns of test accuracies, which are curves beside the supernet's own.
CurveGroup true_accuracies(const RunData& run) {
  CurveGroup group{.title = "True test accuracy of the epoch's cell, percent",
                   .remark = "From the benchmark's table, trained in full.",
                   .measures = {},
                   .percent = true};
  if (run.metrics.lines.empty()) return group;
  const auto values = run.metrics.lines.back().find("benchmark");
  if (values == run.metrics.lines.back().end() || !values->is_object()) return group;
  for (const auto& [name, value] : values->items()) {
    if (name.ends_with("_test") || name == "test_acc")
      group.measures.push_back({.object = "benchmark", .name = name});
  }
  return group;
}

// Cells that are drawn and trained one by one: there is no supernet and no alpha.
bool is_random(const RunData& run) {
  const std::string method = text_in(run.summary, "method");
  return (method.empty() ? run.effective("method") : method) == "random";
}

// Empty where there was none: a curve without numbers is left out.
CurveGroup guard_curve(const RunData& run) {
  const std::string name = run.effective("guard");
  CurveGroup group{.title = "Guard", .remark = {}, .measures = {{.object = {}, .name = "guard"}}};
  for (const nas::GuardKind& kind : nas::guard_kinds()) {
    if (kind.name != name) continue;
    group.title = fmt::format("Guard: {}", name);
    group.remark = fmt::format("{}.", kind.curve);
  }
  return group;
}

std::vector<CurveGroup> search_curves(const RunData& run) {
  const auto one = [](const char* title, const char* name, bool percent, const char* remark) {
    return CurveGroup{
        .title = title, .remark = remark, .measures = {{.object = {}, .name = name}}, .percent = percent};
  };
  CurveGroup loss = one("Loss", "valid_loss", false, "");
  loss.measures.push_back({.object = {}, .name = "search_loss"});
  std::vector<CurveGroup> groups{loss, one(is_random(run) ? "Validation accuracy of each cell, percent"
                                                          : "Validation accuracy of the supernet, percent",
                                           "valid_accuracy", true, "")};
  groups.push_back(true_accuracies(run));
  CurveGroup weights{
      .title = "Operations: mean weight over all edges", .remark = "Softmax of alpha.", .measures = {}};
  CurveGroup shares{.title = "Operations: share of the cell's edges",
                    .remark = is_random(run) ? "" : "By the largest weights.",
                    .measures = {}};
  if (!run.metrics.lines.empty()) {
    for (const auto& [group, object] :
         {std::pair{&weights, "operation_weights"}, std::pair{&shares, "operation_shares"}}) {
      const auto values = run.metrics.lines.back().find(object);
      if (values == run.metrics.lines.back().end() || !values->is_object()) continue;
      for (const auto& [name, value] : values->items())
        group->measures.push_back({.object = object, .name = name});
    }
  }
  if (!is_random(run)) groups.push_back(weights);
  groups.push_back(shares);
  groups.push_back(one("Norm of the direction", "direction_norm", false, ""));
  groups.push_back(one("Dominant eigenvalue", "eigenvalue", false,
                       "Of the validation loss's Hessian in alpha; a steep rise announces a collapse."));
  groups.push_back(one("Implicit over direct term", "mixed_over_direct", false,
                       "How much of the hypergradient a first-order search would miss."));
  groups.push_back(guard_curve(run));
  return groups;
}

}  // namespace

JobReport search_report(const RunData& run) {
  JobReport job = plain_report(run);
  const Json& s = run.summary;
  const std::string method = text_in(s, "method").empty() ? run.effective("method") : text_in(s, "method");
  const std::string data = text_in(s, "data").empty() ? run.effective("data") : text_in(s, "data");
  const auto [space, genotype] = genotype_of(run);
  job.subject = fmt::format("{} searches {} for {}", method.empty() ? "a search" : method, space,
                            data.empty() ? "images" : name_of_path(data));
  job.headlines.clear();
  const auto last = [&](const char* name) { return last_value(run.metrics, {.object = {}, .name = name}); };
  const auto epochs = last("epoch");
  const bool random = is_random(run);
  const char* whose = random ? "the cell's" : "supernet's";
  const double truth = number_in(s.value("benchmark", Json::object()), "cifar10_test").value_or(NAN);
  if (genotype.empty()) {
    job.result = "No epoch has been recorded.";
  } else {
    job.result =
        fmt::format("{} {} {} it {} <code>{}</code>", run.summary.empty() ? "So far, after" : "After",
                    html::number_text(epochs.value_or(0)), random ? "cells" : "epochs",
                    run.summary.empty() ? "leans to" : "chose", escaped(genotype));
    if (std::isfinite(truth))
      job.result += fmt::format(", which reaches {} on CIFAR-10's test images when trained in full",
                                html::percent_text(truth));
    job.result += ".";
  }
  if (std::isfinite(truth))
    job.headlines.emplace_back("true CIFAR-10 test accuracy", html::percent_text(truth));
  if (const auto accuracy = value_of_chosen(run, "valid_accuracy"))
    job.headlines.emplace_back(fmt::format("{} validation accuracy", whose), html::percent_text(*accuracy));
  if (const auto loss = value_of_chosen(run, "valid_loss"))
    job.headlines.emplace_back(fmt::format("{} validation loss", whose), html::number_text(*loss));
  if (const auto parameters = number_in(s, "parameters"))
    job.headlines.emplace_back("network's parameters", fmt::format("{:.2f} M", *parameters / 1e6));
  if (const auto multiply_adds = number_in(s, "multiply_adds"))
    job.headlines.emplace_back("multiply-adds", fmt::format("{:.1f} M", *multiply_adds / 1e6));
  if (const auto seconds = number_in(s, "seconds"))
    job.headlines.emplace_back("time", html::time_text(*seconds));
  job.curves = search_curves(run);
  job.hidden_measures = {"regret", "benchmark", "operation_weights", "operation_shares"};
  std::vector<ReportSection> others = std::move(job.sections);
  job.sections.clear();
  add_cells(run, job, "The cell");
  if (std::string truths = truth_html(run); !truths.empty()) {
    job.sections.push_back({.id = "truth", .title = "True accuracies", .content = std::move(truths)});
  }
  if (!random) {
    std::string alpha;
    try {
      alpha = alpha_html(run);
    } catch (const std::exception& error) {
      alpha = html::note(fmt::format("Alpha cannot be shown: {}", error.what()));
    }
    job.sections.push_back({.id = "alpha", .title = "Alpha by epoch", .content = std::move(alpha)});
  }
  job.sections.insert(job.sections.end(), others.begin(), others.end());
  return job;
}

JobReport train_report(const RunData& run) {
  JobReport job = plain_report(run);
  std::string data = text_in(run.summary, "data");
  if (data.empty()) data = run.effective("data");
  job.subject = "Training a cell on " + (data.empty() ? "images" : name_of_path(data));
  add_cells(run, job, "The cell that was trained");
  return job;
}

}  // namespace bilevel
