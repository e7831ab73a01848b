// Runs that differ in their seed alone are one configuration: its mean and spread, and the table in the forms
// that people paste.

#include "bilevel/report/study.h"

#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/report/study_curves.h"
#include "bilevel/report/study_table.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Sample {
  RunData run;
  JobReport job;
};

// Options in effect, which of them were typed, and an accuracy at the end.
Sample sample(const std::string& folder, uint64_t seed, const Json& options, double accuracy) {
  Sample s;
  s.run.facts.folder = "runs/" + folder;
  s.run.facts.command = "search";
  s.run.facts.status = RunStatus::finished;
  s.run.facts.seed = seed;
  s.run.config = {{"options", options}, {"effective", options}};
  s.run.config["effective"]["seed"] = std::to_string(seed);
  s.job.numbers = {{"test_accuracy", "test accuracy", accuracy, true, false}};
  return s;
}

Study study_of(const std::vector<Sample>& samples, const std::vector<std::string>& by = {}) {
  std::vector<RunData> runs;
  std::vector<JobReport> jobs;
  for (const Sample& s : samples) {
    runs.push_back(s.run);
    jobs.push_back(s.job);
  }
  return make_study(runs, jobs, by);
}

std::vector<Sample> two_methods() {
  return {sample("a", 0, {{"method", "idarts"}}, 90), sample("b", 0, {{"method", "darts"}}, 50),
          sample("c", 1, {{"method", "idarts"}}, 92), sample("d", 1, {{"method", "darts"}}, 60),
          sample("e", 2, {{"method", "idarts"}}, 97)};
}

TEST(Statistic, HasTheDeviationOfASample) {
  const Statistic s = statistic_of({2, 4, 4, 4, 5, 5, 7, 9, NAN});
  EXPECT_EQ(s.count, 8);
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(32.0 / 7));
  EXPECT_EQ(s.low, 2);
  EXPECT_EQ(s.high, 9);
  EXPECT_EQ(statistic_of({3}).deviation, 0);
  EXPECT_EQ(statistic_of({}).count, 0);
}

TEST(Study, TakesMeansOverSeeds) {
  const Study study = study_of(two_methods());
  EXPECT_THAT(study.options, ElementsAre("method"));
  ASSERT_EQ(study.groups.size(), 2U);
  EXPECT_EQ(study.groups[0].label, "idarts");
  EXPECT_THAT(study.groups[0].seeds, ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(study.groups[0].numbers[0].mean, 93);
  EXPECT_DOUBLE_EQ(study.groups[0].numbers[0].deviation, std::sqrt(13.0));
  EXPECT_THAT(study.groups[1].runs, ElementsAre(1, 3));
  EXPECT_DOUBLE_EQ(study.groups[1].numbers[0].mean, 55);
  EXPECT_TRUE(study.repeated());
  EXPECT_THAT(study.notes, IsEmpty());
}

// Every option parts the runs, but a method that brings a rate along is named by the method.
TEST(Study, NamesConfigurationsByAsFewOptionsAsTellThemApart) {
  std::vector<Sample> samples = two_methods();
  for (Sample& s : samples) {
    const bool idarts = s.run.effective("method") == "idarts";
    Json effective = {{"inner_rate", idarts ? "0.01" : "0.025"}};  // before --method, and not typed
    effective.update(s.run.config["effective"]);
    effective["threads"] = std::to_string(s.run.facts.seed);
    s.run.config["effective"] = effective;
  }
  const Study along = study_of(samples);
  EXPECT_THAT(along.options, ElementsAre("method"));
  EXPECT_THAT(along.going_along, ElementsAre("inner_rate"));
  EXPECT_THAT(along.ignored, ElementsAre("threads"));

  samples[4].run.config["effective"]["epochs"] = "7";  // no longer a run of idarts like the others
  const Study apart = study_of(samples);
  EXPECT_THAT(apart.options, ElementsAre("method", "epochs"));
  ASSERT_EQ(apart.groups.size(), 3U);
  EXPECT_EQ(apart.groups[2].label, "idarts, 7");
  EXPECT_EQ(apart.groups[0].label, "idarts, \u2013");
  EXPECT_DOUBLE_EQ(apart.groups[0].numbers[0].mean, 91);

  const Study together = study_of(samples, {"method"});
  ASSERT_EQ(together.groups.size(), 2U);
  EXPECT_EQ(together.groups[0].numbers[0].count, 3);
  EXPECT_THAT(message([&] { study_of(samples, {"methd"}); }),
              HasSubstr("by = methd: no run has an option methd"));
  EXPECT_THAT(message([&] { study_of(samples, {"seed"}); }), HasSubstr("means over seeds"));
}

// What a command measures on the data that its seed draws is not what a person chose; a word is, typed or
// not.
TEST(Study, ARateMeasuredOnTheSeedsDataMakesNoConfiguration) {
  std::vector<Sample> samples = two_methods();
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].run.config["effective"]["inner_rate"] = std::to_string(0.01 * static_cast<double>(1 + i));
  }
  const Study measured = study_of(samples);
  EXPECT_THAT(measured.options, ElementsAre("method"));
  EXPECT_EQ(measured.groups.size(), 2U);
  EXPECT_THAT(measured.ignored, ElementsAre("inner_rate"));
  samples[0].run.config["options"]["inner_rate"] = "0.01";  // typed: it does
  EXPECT_EQ(study_of(samples).groups.size(), 5U);
  samples = two_methods();
  samples[4].run.config["effective"]["guard"] = "beta-decay";  // of a version whose default it is
  EXPECT_EQ(study_of(samples).groups.size(), 3U);
}

TEST(Study, CountsNoRunTwiceAndNoneThatDidNotFinish) {
  std::vector<Sample> samples = two_methods();
  samples.push_back(sample("again", 1, {{"method", "idarts"}}, 92));
  samples.push_back(sample("broken", 3, {{"method", "idarts"}}, 10));
  samples.back().run.facts.status = RunStatus::failed;
  const Study study = study_of(samples);
  EXPECT_THAT(study.groups[0].runs, ElementsAre(0, 2, 4));
  EXPECT_THAT(study.notes, ElementsAre("again does not count: it has the options and the seed of c.",
                                       "broken does not count: it is failed, not finished."));
}

TEST(Study, PrintsItsTableInFourForms) {
  std::vector<Sample> samples = two_methods();
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].job.numbers.push_back(
        {"valid_loss", "validation loss", 0.5 + 0.01 * static_cast<double>(i), false, false});
  }
  samples[3].job.numbers.pop_back();  // one value is no spread
  samples[1].run.config["effective"]["method"] = samples[3].run.config["effective"]["method"] =
      "50%_a|b, \"c\"";
  const Study study = study_of(samples);
  EXPECT_EQ(study_markdown(study),
            "| method        |   n | test accuracy, % | validation loss |\n"
            "|---------------|----:|-----------------:|----------------:|\n"
            "| idarts        |   3 |     93.00 \u00b1 3.61 |   0.520 \u00b1 0.020 |\n"
            "| 50%_a\\|b, \"c\" |   2 |     55.00 \u00b1 7.07 |  0.5100 (n = 1) |\n");
  EXPECT_EQ(
      study_csv(study),
      "method,n,seeds,test_accuracy_mean,test_accuracy_std,test_accuracy_n,valid_loss_mean,valid_loss_std,"
      "valid_loss_n\n"
      "idarts,3,0 1 2,93,3.605551275,3,0.52,0.02,3\n"
      "\"50%_a|b, \"\"c\"\"\",2,0 1,55,7.071067812,2,0.51,,1\n");
  EXPECT_EQ(study_latex(study),
            "% Mean and standard deviation of the sample over n seeds. Needs \\usepackage{booktabs}.\n"
            "\\begin{tabular}{lrrr}\n\\toprule\n"
            "method & $n$ & test accuracy, \\% & validation loss \\\\\n\\midrule\n"
            "idarts & 3 & 93.00 $\\pm$ 3.61 & 0.520 $\\pm$ 0.020 \\\\\n"
            "50\\%\\_a\\textbar{}b, \"c\" & 2 & 55.00 $\\pm$ 7.07 & 0.5100 (n = 1) \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
  std::vector<Sample> missing = two_methods();
  for (Sample& s : missing) {
    if (s.run.effective("method") == "darts") s.job.numbers.clear();
  }
  EXPECT_THAT(study_latex(study_of(missing)), HasSubstr("\ndarts & 2 & -- \\\\\n"));
  const Json json = study_json(study);
  EXPECT_EQ(json["by"], Json({"method"}));
  EXPECT_EQ(json["groups"][1]["numbers"]["valid_loss"],
            Json({{"mean", 0.51}, {"std", nullptr}, {"n", 1}, {"min", 0.51}, {"max", 0.51}}));
  EXPECT_EQ(json["groups"][0]["seeds"], Json({0, 1, 2}));
  EXPECT_THAT(study_html(study),
              AllOf(HasSubstr("<td>93.00 \u00b1 3.61</td>"),
                    HasSubstr("<th scope=\"col\">50%_a|b, &quot;c&quot;</th>"), Not(HasSubstr("\"c\""))));
}

TEST(Study, MeansOfCurvesAreOverTheRunsThatGotThere) {
  std::vector<Sample> samples = two_methods();
  std::vector<RunData> runs;
  for (Sample& s : samples) {
    const double base = static_cast<double>(s.run.facts.seed);
    for (int epoch = 1; epoch <= (s.run.facts.seed == 2 ? 2 : 3); ++epoch) {
      s.run.metrics.lines.push_back(
          {{"step", epoch}, {"epoch", epoch}, {"benchmark", {{"cifar10_valid", base + 10 * epoch}}}});
    }
    runs.push_back(s.run);
  }
  const Study study = study_of(samples);
  const MeanCurve curve = mean_curve(runs, study.groups[0], {"benchmark", "cifar10_valid"});
  ASSERT_EQ(curve.places.size(), 3U);
  EXPECT_EQ(curve.places[1].step, 2);
  EXPECT_EQ(curve.places[1].statistic.count, 3);
  EXPECT_DOUBLE_EQ(curve.places[1].statistic.mean, 21);
  EXPECT_DOUBLE_EQ(curve.places[1].statistic.deviation, 1);
  EXPECT_EQ(curve.places[2].statistic.count, 2);
  EXPECT_DOUBLE_EQ(curve.places[2].statistic.mean, 30.5);
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "SKIPPED: gnuplot is not installed";
  EXPECT_THAT(study_curves_html(runs, study),
              AllOf(HasSubstr("<h3>The cell in the table, CIFAR-10 validation, percent</h3>"),
                    HasSubstr("idarts (n = 3)"), HasSubstr("idarts: fewer than 3 runs from epoch 3 on."),
                    HasSubstr("alt=\"The cell in the table")));
}

}  // namespace
}  // namespace bilevel::test
