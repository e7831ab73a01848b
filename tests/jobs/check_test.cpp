// The job `check` as a C++ program calls it: no folder, nothing printed, nothing parsed.
#include "bilevel/jobs/check.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bilevel/check/check.h"
#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/fields/options_view.h"
#include "bilevel/problems/registry.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckJobOptions check_on(const std::string& problem) {
  CheckJobOptions options;
  options.given.set(options.problem.problem, problem);
  options.given.set(options.compute.threads, 1);
  return options;
}

std::string refusal(const CheckJobOptions& options) {
  RunContext context;
  try {
    run_check(options, context);
  } catch (const OptionError& error) {
    return flag_text(error.marked());
  }
  return "";
}

// The same numbers as the function below it gives on the same problem.
TEST(CheckJob, IsCheckProblemWithTheProblemsDefaults) {
  CheckJobOptions options = check_on("ridge");
  options.given.set(options.problem.data.seed, uint64_t{3});
  options.given.set(options.check.methods, std::vector<std::string>{"cg", "neumann"});
  options.given.set(options.check.settings.terms, int64_t{5});
  std::vector<std::string> said;
  RunContext context({}, {.progress = [&](const std::string& text) { said.push_back(text); }});
  const CheckJobResult result = run_check(options, context);
  EXPECT_EQ(result.end.status, RunStatus::finished);
  EXPECT_FALSE(context.has_folder());
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.front(), HasSubstr("check: "));

  ProblemOptions data;
  data.seed = 3;
  const NamedProblem problem = make_problem("ridge", data);
  CheckOptions direct;
  direct.methods = {"cg", "neumann"};
  direct.settings.terms = 5;
  direct.terms_given = true;
  direct.settings.seed = direct.seed = 3;
  direct.inner.steps = problem.inner_steps;
  direct.inner.rate = problem.inner_rate;
  direct.inner.schedule.total_steps = problem.inner_steps;
  const CheckResult direct_result = check_problem(problem, direct);
  ASSERT_EQ(result.check.methods.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(
        result.check.methods[i].hypergradient.value.equal(direct_result.methods[i].hypergradient.value));
    EXPECT_EQ(result.check.methods[i].error_implicit, direct_result.methods[i].error_implicit);
    EXPECT_EQ(result.json.at("methods")[i].at("error_implicit"), direct_result.methods[i].error_implicit);
  }
  EXPECT_EQ(result.check.verdict, direct_result.verdict);
}

// What the problem decides stays the user's where the user decided it.
TEST(CheckJob, ASupernetsCurvatureIsItsOwnUnlessItIsGiven) {
  CheckJobOptions options = check_on("supernet");
  options.given.set(options.problem.supernet.images, int64_t{4});
  options.given.set(options.check.inner.steps, int64_t{1});
  options.given.set(options.check.methods, std::vector<std::string>{"one-step"});
  RunContext context;
  const CheckResult own = run_check(options, context).check;
  EXPECT_EQ(own.curvature.kind, "gauss-newton");
  EXPECT_GT(own.curvature.damping, 0);
  EXPECT_TRUE(own.implicit.at_iterate);
  options.given.set(options.check.settings.curvature.damping, 0.25);
  EXPECT_EQ(run_check(options, context).check.curvature.damping, 0.25);
}

TEST(CheckJob, WordsOfItsOwnTypesAreReadBack) {
  CheckJobOptions options;
  OptionsView view(options);
  view.give(view.at("sweep"), {"K=2..7"});
  EXPECT_EQ(options.sweep->first, 2);
  EXPECT_EQ(options.sweep->last, 7);
  EXPECT_THAT(view.words(view.at("sweep")), ElementsAre("K=2..7"));
  view.give(view.at("linear_rate"), {"auto"});
  EXPECT_TRUE(options.linear_rate.automatic);
  EXPECT_THAT(view.words(view.at("linear_rate")), ElementsAre("auto"));
  view.give(view.at("linear_rate"), {"0.125"});
  EXPECT_FALSE(options.linear_rate.automatic);
  EXPECT_EQ(options.linear_rate.value, 0.125);
  for (const std::string wrong : {"0..4", "K=0-4", "K=..4", "K=a..4", "K=0..4x"}) {
    try {
      view.give(view.at("sweep"), {wrong});
      FAIL() << wrong;
    } catch (const OptionError& error) {
      EXPECT_EQ(flag_text(error.marked()), "--sweep " + wrong + ": must look like K=0..40");
    }
  }
  for (const std::string wrong : {"-1", "nan", "automatic", "1x"}) {
    try {
      view.give(view.at("linear_rate"), {wrong});
      FAIL() << wrong;
    } catch (const OptionError& error) {
      EXPECT_EQ(flag_text(error.marked()),
                "--linear-rate " + wrong + ": must be auto or a number of at least 0");
    }
  }
}

TEST(CheckJob, RefusesWhatWouldBeIgnoredOrCannotBe) {
  CheckJobOptions unread = check_on("ridge");
  unread.given.set(unread.check.methods, std::vector<std::string>{"reverse"});
  unread.given.set(unread.check.settings.terms, int64_t{3});
  EXPECT_EQ(
      refusal(unread),
      "--terms has no effect with --methods reverse; only neumann, cg, minres, fixed-point and nystrom use "
      "it. Leave it out");
  CheckJobOptions step = check_on("ridge");
  step.given.set(step.check.methods, std::vector<std::string>{"reverse"});
  step.given.set(step.check.settings.curvature.difference_step, 0.1);
  EXPECT_THAT(refusal(step), HasSubstr("--difference-step has no effect with --methods reverse"));
  CheckJobOptions learned = check_on("learned-rate");
  learned.given.set(learned.check.inner.rate, 0.1);
  EXPECT_EQ(refusal(learned),
            "--inner-rate: problem learned-rate learns its rate, which is part of x; leave it out");
  CheckJobOptions megabytes = check_on("toy");
  megabytes.given.set(megabytes.checkpoint_megabytes, -1.0);
  EXPECT_THAT(refusal(megabytes), HasSubstr("--checkpoint-megabytes -1: must be above 0"));
  EXPECT_THAT(refusal(CheckJobOptions{}), HasSubstr("--problem is missing: choose from toy"));
}

// A file that cannot be written costs no answer; a folder that cannot be had costs no work.
TEST(CheckJob, TheAnswerIsThereWhereAFileIsNot) {
  const TemporaryFolder folder;
  CheckJobOptions options = check_on("toy");
  options.given.set(options.check.methods, std::vector<std::string>{"reverse"});
  options.given.set(options.save, folder / "saved");
  RunContext context;
  const CheckJobResult good = run_check(options, context);
  EXPECT_EQ(good.end.status, RunStatus::finished);
  EXPECT_TRUE(read_npy(folder / "saved/reverse.npy").equal(good.check.methods.at(0).hypergradient.value));

  std::filesystem::create_directory(folder / "taken");
  std::filesystem::create_directory(folder / "taken/reverse.npy");  // where the file should be
  options.save = folder / "taken";
  const CheckJobResult unwritten = run_check(options, context);
  EXPECT_EQ(unwritten.end.status, RunStatus::failed);
  EXPECT_EQ(unwritten.end.cause, EndCause::files);
  EXPECT_THAT(unwritten.end.message, HasSubstr("reverse.npy"));
  EXPECT_EQ(unwritten.json.at("methods").size(), 1U);

  std::ofstream(folder / "file") << "x";
  options.save = folder / "file";
  try {
    run_check(options, context);
    FAIL() << "a file is in the folder's place";
  } catch (const RunError& error) {
    EXPECT_EQ(flag_text(error.marked()), "--save " + options.save + ": cannot create the folder " +
                                             options.save + ": a file is in its place");
  }
}

}  // namespace
}  // namespace bilevel::test
