// `bilevel report` of many runs: means and spreads by configuration, on the page, in the files beside it and
// in --json.

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/pages.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportOfAStudy : public ::testing::Test {
 protected:
  // Eight searches: two methods, four seeds. Of epoch e and seed s the table has 80 + e + s % of the
  // validation images for idarts, 60 + e - 5 s % for darts; the last of three epochs is the answer.
  void SetUp() override {
    for (const char* method : {"idarts", "darts"}) {
      for (int seed = 0; seed < 4; ++seed) {
        const bool idarts = std::string(method) == "idarts";
        const auto table = [&](int epoch) {
          const double valid = idarts ? 80 + epoch + seed : 60 + epoch - 5 * seed;
          return json{{"cifar10_valid", valid}, {"cifar10_test", valid + 1}, {"params_m", 0.5}};
        };
        std::string metrics;
        for (int epoch = 1; epoch <= 3; ++epoch) {
          metrics += json{{"step", epoch},
                          {"epoch", epoch},
                          {"seconds", 2 * epoch},
                          {"valid_loss", 2.0 / epoch + 0.1 * seed},
                          {"valid_accuracy", 30.0 + epoch},
                          {"skips", idarts ? 1 : 1 + seed},
                          {"benchmark", table(epoch)}}
                         .dump() +
                     "\n";
        }
        json options = {{"--method", method}};
        json effective = {{"--inner-rate", idarts ? "0.01" : "0.025"},
                          {"--method", method},
                          {"--seed", std::to_string(seed)},
                          {"--space", "nasbench201"}};
        const std::string name = method + ("-" + std::to_string(seed));
        make_run(folder_ / name, "search", {{"options", options}, {"effective", effective}},
                 {{"space", "nasbench201"},
                  {"method", method},
                  {"genotype", "|skip_connect~0|+|none~0|none~1|+|none~0|none~1|none~2|"},
                  {"chosen_epoch", 3},
                  {"benchmark", table(3)},
                  {"seconds", 6}},
                 metrics, "finished", "", static_cast<uint64_t>(seed));
        runs_ += " " + folder_ / name;
      }
    }
  }

  const TemporaryFolder folder_;
  std::string runs_;
};

TEST_F(ReportOfAStudy, HasMeansAndSpreadsInEveryForm) {
  const Output output = run_program("report" + runs_ + " --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json printed = output.json();
  EXPECT_EQ(printed.at("report"), folder_ / "comparison.html");
  const json& study = printed.at("study");
  EXPECT_EQ(study.at("by"), json({"method"}));
  EXPECT_EQ(study.at("differs_along"), json({"inner_rate"}));
  ASSERT_EQ(study.at("groups").size(), 2U);
  const json& idarts = study.at("groups")[0];
  EXPECT_EQ(idarts.at("options"), json({{"method", "idarts"}}));
  EXPECT_EQ(idarts.at("seeds"), json({0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(idarts.at("numbers").at("cifar10_valid").at("mean"), 84.5);
  EXPECT_DOUBLE_EQ(idarts.at("numbers").at("cifar10_valid").at("std"), std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(study.at("groups")[1].at("numbers").at("cifar10_test").at("mean"), 56.5);
  EXPECT_EQ(idarts.at("numbers").at("seconds").at("n"), 4);
  EXPECT_EQ(idarts.at("numbers").at("skips").at("mean"), 1);
  EXPECT_EQ(study.at("groups")[1].at("numbers").at("skips").at("mean"), 2.5);

  const std::string csv = read_text(printed.at("tables").at("csv")),
                    markdown = read_text(printed.at("tables").at("markdown")),
                    latex = read_text(printed.at("tables").at("latex"));
  EXPECT_THAT(
      csv,
      AllOf(HasSubstr("method,n,seeds,cifar10_test_mean,cifar10_test_std,cifar10_test_n,cifar10_valid_mean,"),
            HasSubstr("\nidarts,4,0 1 2 3,85.5,1.290994449,4,84.5,1.290994449,4,"),
            HasSubstr("\ndarts,4,0 1 2 3,56.5,")));
  EXPECT_THAT(markdown, HasSubstr("84.50 \u00b1 1.29"));
  EXPECT_THAT(latex, HasSubstr("idarts & 4 & 85.50 $\\pm$ 1.29 & 84.50 $\\pm$ 1.29 & "));

  const std::string page = read_page(folder_ / "comparison.html");
  expect_well_made(page);
  EXPECT_THAT(page,
              AllOf(HasSubstr("id=\"study\""), HasSubstr("<td>84.50 \u00b1 1.29</td>"),
                    HasSubstr("As LaTeX: comparison-table.tex"), HasSubstr("<code>--inner-rate</code>")));
  for (const std::string& form : {csv, markdown, latex}) {
    std::string escaped;
    for (const char c : form) escaped += c == '&' ? "&amp;" : c == '\'' ? "&#39;" : std::string(1, c);
    EXPECT_THAT(page, HasSubstr(escaped)) << "a form that is not on the page";
  }
  if (!has_program("gnuplot")) GTEST_SKIP() << "SKIPPED: gnuplot is not installed";
  EXPECT_THAT(
      page,
      AllOf(
          HasSubstr("alt=\"The cell in the table, CIFAR-10 validation, percent. idarts goes from 82.5 \u00b1 "
                    "1.291 to 84.5 \u00b1 1.291. darts goes from "),
          HasSubstr("</span>idarts (n = 4)</li>")));
  if (!has_program("chromium"))
    GTEST_SKIP() << "SKIPPED: chromium is not installed: nobody looked at the page";
  for (const int width : {1400, 400}) {
    SCOPED_TRACE(width);
    const json seen = look_at(folder_, {folder_ / "comparison.html"}, width);
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_LE(seen[0].at("wide"), width) << "one would have to scroll sideways";
    EXPECT_EQ(seen[0].at("broken"), 0) << "pictures that the browser cannot show";
    EXPECT_EQ(seen[0].at("empty"), json::array());
    EXPECT_GE(seen[0].at("letters"), 12.5) << "too small to read";
    for (const char* id : {"study", "means", "results", "curves", "configuration"}) {
      EXPECT_THAT(seen[0].at("ids"), Contains(id));
    }
    const std::string picture = screenshots() + "/study-" + std::to_string(width) + ".png";
    std::filesystem::remove(picture);
    const Browser looked =
        browse("file://" + folder_ / "comparison.html",
               "--screenshot='" + picture + "' --window-size=" + std::to_string(width) + ",3600");
    EXPECT_THAT(looked.log, AllOf(Not(HasSubstr("CONSOLE")), Not(HasSubstr("Refused to"))));
    EXPECT_TRUE(std::filesystem::exists(picture)) << looked.log;
  }
}

TEST_F(ReportOfAStudy, PrintsTheTableAndTheNamesOfItsFiles) {
  const Output output = run_program("report" + runs_ + " --by method --out " + folder_ / "a.b.html");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr(folder_ / "a.b.html\n" + folder_ / "a.b-table.csv\n" +
                                    folder_ / "a.b-table.md\n" + folder_ / "a.b-table.tex\n\n| method |"));
  EXPECT_THAT(output.out, HasSubstr(read_text(folder_ / "a.b-table.md")));
  const Output unknown = run_program("report" + runs_ + " --by gard");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--by gard: no run has an option --gard"));
  const Output one = run_program("report " + folder_ / "idarts-0" + " --by method");
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("one run was given"));
}

// The numbers of other jobs: each is there under its own name.
TEST_F(ReportOfAStudy, TakesMeansOfOtherJobsToo) {
  std::string runs;
  for (const int seed : {0, 1}) {
    const std::string out = folder_ / ("ridge-" + std::to_string(seed));
    ASSERT_EQ(run_program("solve --problem ridge --iterations 8 --quiet --threads 1 --seed " +
                          std::to_string(seed) + " --out " + out)
                  .exit_code,
              0);
    runs += " " + out;
  }
  const json study = run_program("report" + runs + " --json").json().at("study");
  ASSERT_EQ(study.at("groups").size(), 1U);
  double sum = 0;
  for (const int seed : {0, 1}) {
    const std::string metrics = read_text(folder_ / ("ridge-" + std::to_string(seed) + "/metrics.jsonl"));
    const size_t last = metrics.rfind('\n', metrics.size() - 2);
    sum += json::parse(metrics.substr(last + 1)).at("outer_loss").get<double>();
  }
  EXPECT_DOUBLE_EQ(study.at("groups")[0].at("numbers").at("outer_loss").at("mean"), sum / 2);
  EXPECT_EQ(study.at("groups")[0].at("numbers").at("oracle_calls").at("n"), 2);
}

}  // namespace
}  // namespace bilevel::test
