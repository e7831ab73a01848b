// A cleaning's page: what the cleaning was worth, the weights, and the most suspect examples.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bilevel/clean/suspect_pictures.h"
#include "bilevel/data/byte_source.h"
#include "bilevel/data/csv.h"
#include "bilevel/report/html.h"
#include "bilevel/report/job_parts.h"

namespace bilevel {
namespace {

using html::escaped;

constexpr int64_t largest_png = 1 << 20;

std::vector<double> column(const std::string& path, const std::string& name) {
  CsvOptions options{.largest_bytes = int64_t{1} << 28};
  if (name == "weight") options.drop = {"given_label", "suggested_label"};  // which may be names
  const CsvTable table = read_csv(path, options);
  const auto found = std::find(table.names.begin(), table.names.end(), name);
  if (found == table.names.end())
    throw std::runtime_error(fmt::format("{}: there is no column {}", path, name));
  const Tensor values = table.values.select(1, found - table.names.begin()).to(at::kDouble).contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

// On your own tables: a weight is the probability that the label is right.
bool is_by_noise_model(const Json& summary) { return text_in(summary, "by") == "noise-model"; }
std::string trained_on(const Json& summary) {
  if (is_by_noise_model(summary) && text_in(summary, "returned") == "baseline") return "all labels";
  return is_by_noise_model(summary) ? "the probable labels" : "the learned weights";
}

std::string weights_html(const RunData& run) {
  const std::string weights = run.facts.folder + "/weights.csv", noise = run.facts.folder + "/noise.csv";
  if (!std::filesystem::exists(weights)) return "";
  try {
    const bool probabilities = is_by_noise_model(run.summary);
    ValuesPicture picture{.values = column(weights, "weight"),
                          .label = probabilities ? "probability" : "weight",
                          .title = probabilities ? "How probable it is that a label is right"
                                                 : "Learned weights of the examples"};
    if (std::filesystem::exists(noise)) {
      for (const double wrong : column(noise, "wrong")) picture.marked.push_back(wrong > 0.5);
      picture.unmarked_name = "label is right";
      picture.marked_name = "label is wrong";
    }
    return values_html(picture);
  } catch (const std::exception& error) {
    return html::note(error.what());
  }
}

std::string accuracies_html(const Json& s) {
  html::Table table{.head = {"trained on", "test", "validation", "validation loss"},
                    .rows = {},
                    .caption = {},
                    .numbers = true};
  for (const auto& [title, name] : {std::pair{trained_on(s), "final_training"},
                                    std::pair{std::string("all labels alike"), "baseline_training"}}) {
    const Json model = s.value(name, Json::object());
    const auto percent = [&](const char* key) {
      const auto value = number_in(model, key);
      return value ? html::percent_text(*value) : std::string("\u2013");
    };
    const auto loss = number_in(model, "valid_loss");
    if (model.is_object() && !model.empty()) {
      table.rows.push_back({title, percent("test_accuracy"), percent("valid_accuracy"),
                            loss ? html::number_text(*loss) : "\u2013"});
    }
  }
  std::string out = table.rows.empty() ? "" : html::table(table);
  html::Table found{
      .head = {"against the truth", "F1", "precision", "recall"}, .rows = {}, .caption = {}, .numbers = true};
  for (const auto& [title, suffix] :
       {std::pair{"labels that are wrong", ""}, std::pair{"labels that were replaced", "_replaced"}}) {
    const auto f1 = number_in(s, std::string("f1") + suffix),
               precision = number_in(s, std::string("precision") + suffix),
               recall = number_in(s, std::string("recall") + suffix);
    if (f1 && precision && recall) {
      found.rows.push_back({title, fmt::format("{:.3f}", *f1), fmt::format("{:.3f}", *precision),
                            fmt::format("{:.3f}", *recall)});
    }
  }
  if (!found.rows.empty()) out += html::table(found);
  return out;
}

struct Suspect {
  std::string index, given, suggested, truth, weight;
};

// Class names are a file's text, labels may be numbers.
std::string word(const Json& object, const char* name) {
  if (const auto number = number_in(object, name)) return html::number_text(*number);
  return text_in(object, name);
}

Suspect suspect(const Json& one) {
  const auto weight = number_in(one, "weight");
  return {.index = word(one, "index"),
          .given = word(one, "given"),
          .suggested = word(one, "suggested"),
          .truth = word(one, "truth"),
          .weight = weight ? fmt::format("{:.2g}", *weight) : ""};
}

// A PNG that is really one, or nothing.
std::string picture_bytes(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return "";
  try {
    std::string bytes = read_file(path, largest_png);
    return bytes.starts_with("\x89PNG\r\n\x1a\n") ? bytes : "";
  } catch (const std::exception&) {
    return "";
  }
}

std::string suspects_html(const RunData& run) {
  const std::string path = run.facts.folder + "/suspects.json";
  if (!std::filesystem::exists(path)) return html::note("The run has written no list of suspects.");
  Json list;
  try {
    list = read_json_file(path, 1 << 24);
  } catch (const std::exception& error) {
    return html::note(error.what());
  }
  if (!list.is_object() || !list.contains("suspects") || !list["suspects"].is_array()) {
    return html::note(path + ": expected a list of suspects.");
  }
  html::Table table{.head = {"example", "given label", "suggested", "truth", "weight"}, .rows = {}};
  std::string pictures;
  size_t shown = 0;
  for (const Json& one : list["suspects"]) {
    if (++shown > most_suspect_pictures) break;
    const Suspect s = suspect(one);
    const std::string png = picture_bytes(fmt::format("{}/suspects/{:03}.png", run.facts.folder, shown));
    if (!png.empty()) {
      pictures += fmt::format(
          "<li>{}<div class=\"given\">given: {}</div><div class=\"suggested\">suggested: {}</div>{}"
          "<div class=\"small\">weight {}</div><div class=\"small\">no. {}</div></li>\n",
          html::image("image/png", png,
                      fmt::format("example {}, given as {}, suggested {}", s.index, s.given, s.suggested)),
          escaped(s.given), escaped(s.suggested),
          s.truth.empty() ? "" : fmt::format("<div class=\"small\">truth: {}</div>", escaped(s.truth)),
          escaped(s.weight), escaped(s.index));
    }
    table.rows.push_back(
        {escaped(s.index), escaped(s.given), escaped(s.suggested), escaped(s.truth), escaped(s.weight)});
  }
  if (table.rows.empty()) return "<p>No example is suspect.</p>\n";
  const bool truth =
      std::any_of(table.rows.begin(), table.rows.end(), [](const auto& row) { return !row[3].empty(); });
  if (!truth) {
    table.head.erase(table.head.begin() + 3);
    for (auto& row : table.rows) row.erase(row.begin() + 3);
  }
  const std::string intro = fmt::format(
      "<p>The {} examples of the lowest weight, lowest first; <code>suspects.csv</code> has all of "
      "them.</p>\n",
      table.rows.size());
  if (pictures.empty()) return intro + html::table(table);
  return intro + "<ul class=\"suspects\">\n" + pictures + "</ul>\n" +
         html::details("The same as a table", html::table(table));
}

}  // namespace

JobReport clean_report(const RunData& run) {
  JobReport job = plain_report(run);
  const Json& s = run.summary;
  std::string data = text_in(s, "data");
  if (data.empty()) data = run.effective("data").empty() ? run.effective("train") : run.effective("data");
  job.subject = "Cleaning the labels of " + (data.empty() ? "a training set" : name_of_path(data));
  const auto flagged = number_in(s, "flagged"), examples = number_in(s, "train_examples");
  const auto test = number_in(s, "test_accuracy"), baseline = number_in(s, "baseline_test_accuracy");
  const auto valid = number_in(s, "valid_accuracy"), valid_baseline = number_in(s, "baseline_valid_accuracy");
  if (flagged && examples) {
    job.result = fmt::format("{} of {} examples are suspect", html::number_text(*flagged),
                             html::number_text(*examples));
    const auto& [now, before, where] = test && baseline ? std::tuple{test, baseline, "test"}
                                                        : std::tuple{valid, valid_baseline, "validation"};
    if (now && before) {
      job.result += fmt::format("; a model trained on {} has {} {} accuracy, one on all labels alike {}",
                                trained_on(s), html::percent_text(*now), where, html::percent_text(*before));
    }
    job.result += ".";
    job.headlines.clear();
    if (now) job.headlines.emplace_back(fmt::format("{} accuracy, cleaned", where), html::percent_text(*now));
    if (before)
      job.headlines.emplace_back(fmt::format("{} accuracy, as given", where), html::percent_text(*before));
    job.headlines.emplace_back("suspects", html::number_text(*flagged));
    if (const auto f1 = number_in(s, "f1"))
      job.headlines.emplace_back("F1 against the truth", fmt::format("{:.3f}", *f1));
    if (const auto seconds = number_in(s, "seconds"))
      job.headlines.emplace_back("time", html::time_text(*seconds));
  }
  std::erase_if(job.sections, [](const ReportSection& section) { return section.id == "learned"; });
  job.curves = {{.title = "F1 of the suspects",
                 .remark = "Against the labels before the noise.",
                 .measures = {{.object = {}, .name = "f1_wrong"}, {.object = {}, .name = "f1_replaced"}}}};
  std::string worth = accuracies_html(s);
  const std::string weights = weights_html(run);
  if (!worth.empty() || !weights.empty()) {
    job.sections.push_back(
        {.id = "weights",
         .title = "What it was worth",
         .content = fmt::format("<div class=\"columns\"><div>{}</div>{}</div>\n", worth, weights)});
  }
  job.sections.push_back({.id = "suspects", .title = "Most suspect", .content = suspects_html(run)});
  return job;
}

}  // namespace bilevel
