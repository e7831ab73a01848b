// What each job adds to the page of its run, from the run's data alone.

#include "bilevel/report/jobs.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|";

RunData run_of(const std::string& command, const Json& summary = Json::object()) {
  RunData run;
  run.facts.folder = "nowhere";
  run.facts.command = command;
  run.facts.status = RunStatus::finished;
  run.summary = summary;
  return run;
}

std::vector<std::string> sections_of(const RunData& run) {
  std::vector<std::string> ids;
  for (const ReportSection& section : job_report(run).sections) ids.push_back(section.id);
  return ids;
}

TEST(JobReport, EveryJobHasItsSections) {
  EXPECT_THAT(sections_of(run_of("search", {{"genotype", cell}})), ElementsAre("cells", "alpha"));
  EXPECT_THAT(sections_of(run_of("train", {{"genotype", cell}})), ElementsAre("cells"));
  EXPECT_THAT(sections_of(run_of("clean")), ElementsAre("suspects"));
  EXPECT_THAT(sections_of(run_of("interact")), ElementsAre("interaction"));
  EXPECT_THAT(sections_of(run_of("tune")), ElementsAre("learned"));
  EXPECT_THAT(sections_of(run_of("solve")), IsEmpty());
}

TEST(JobReport, EndsWithTheNumbersOfTheSummaryAndTheLastRecord) {
  RunData run = run_of("solve", {{"algorithm", "soba"}, {"problem", "ridge"}, {"seconds", 2.5}});
  run.metrics.lines = {{{"step", 0}, {"outer_loss", 6.0}}, {{"step", 10}, {"outer_loss", 0.25}}};
  const JobReport job = job_report(run);
  EXPECT_EQ(job.subject, "soba on ridge");
  EXPECT_THAT(job.result, HasSubstr("Outer loss went from 6 to 0.25 in 10 steps"));
  std::vector<std::pair<std::string, double>> numbers;
  for (const FinalNumber& number : job.numbers) numbers.emplace_back(number.name, number.value);
  EXPECT_THAT(numbers, ElementsAre(std::pair("outer_loss", 0.25), std::pair("seconds", 2.5)));
}

TEST(JobReport, OfATableComparesTheModelsOfItsSummary) {
  const Json summary = {{"valid_accuracy", 84.25},
                        {"valid_loss", 0.505},
                        {"test_accuracy", nullptr},
                        {"pooled_valid_loss", 0.51},
                        {"pooled_valid_accuracy", 83.5}};
  const JobReport job = job_report(run_of("interact", summary));
  EXPECT_THAT(job.result, HasSubstr("Validation accuracy is 84.25 %"));
  ASSERT_EQ(job.sections.front().id, "models");
  const std::string& page = job.sections.front().content;
  for (const char* text : {"validation loss", "one model for all", "83.50 %", "0.505"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, ::testing::Not(HasSubstr("test accuracy")));
  EXPECT_EQ(job.headlines.front(), std::pair(std::string("validation accuracy"), std::string("84.25 %")));
}

TEST(JobReport, ATableOfTrainedCellsHasAccuraciesAmongOtherColumns) {
  const Json table = {{"cifar10_test", 93.5}, {"params_m", 0.5}, {"test_acc", 90.0}};
  const JobReport job = job_report(run_of("search", {{"genotype", cell}, {"benchmark", table}}));
  std::vector<std::string> names;
  for (const FinalNumber& number : job.numbers) names.push_back(number.name);
  EXPECT_THAT(names, ElementsAre("cifar10_test", "test_acc"));
}

}  // namespace
}  // namespace bilevel::test
