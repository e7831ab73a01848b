// `bilevel interact` as a user runs it: clusters that are found, accuracy beside both baselines, tasks from
// columns and files, the files that it writes, and every refusal.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/data/process.h"
#include "bilevel/problems/task_sets.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// In a folder of its own, unless the arguments have one.
Output run_interact(const std::string& arguments) {
  const TemporaryFolder folder;
  const bool has_one =
      arguments.find("--out ") != std::string::npos || arguments.find("--resume ") != std::string::npos;
  return run_program("interact --threads 1 " + arguments +
                     (has_one ? "" : " --out '" + folder / "run" + "'"));
}

json interact(const std::string& arguments) {
  const Output output = run_interact("--json " + arguments);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return output.json();
}

class Interact : public ::testing::Test {
 protected:
  std::string refusal(const std::string& arguments, int exit_code) {
    const std::string out = folder_ / "out";
    const Output output = run_program("interact --iterations 2 --out '" + out + "' " + arguments);
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_FALSE(std::filesystem::exists(out)) << arguments;
    return output.err;
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

// Rows as text: the task, the features, the label.
std::string table(const TaskExamples& examples, bool with_task) {
  std::string text;
  for (int64_t i = 0; i < examples.size(); ++i) {
    if (with_task) text += std::to_string(10 + examples.tasks[i].item<int64_t>()) + ",";
    for (int64_t j = 0; j < examples.features.size(1); ++j) {
      text += std::to_string(examples.features[i][j].item<double>()) + ",";
    }
    text += std::to_string(examples.labels[i].item<int64_t>()) + "\n";
  }
  return text;
}

TEST_F(Interact, FindsTheClustersAndBeatsBothBaselines) {
  const json r = interact("--data synthetic --clusters 3 --tasks 12 --out '" + folder_ / "run" + "'");
  EXPECT_GT(r.at("within_clusters").get<double>(), 5 * r.at("across_clusters").get<double>());
  EXPECT_GT(r.at("test_accuracy").get<double>(), r.at("independent_test_accuracy").get<double>() + 3);
  EXPECT_GT(r.at("test_accuracy").get<double>(), r.at("pooled_test_accuracy").get<double>() + 3);
  EXPECT_LE(r.at("test_accuracy").get<double>(), 100);
  EXPECT_EQ(r.at("tasks"), 12);
  EXPECT_EQ(r.at("true_clusters").size(), 3U);
  EXPECT_GT(r.at("rand_index").get<double>(), 85);
  EXPECT_EQ(r.at("interaction").size(), 12U);
  EXPECT_EQ(r.at("interaction")[2][7], r.at("interaction")[7][2]);
  EXPECT_EQ(r.at("counts").at("cross"), 100 * r.at("iterations").get<int64_t>());  // K = T = 100
  EXPECT_EQ(r.at("history").back().at("iteration"), r.at("iterations"));

  const Tensor matrix = read_npy(folder_ / "run/interaction.npy");
  EXPECT_EQ(matrix[3][5].item<double>(), r.at("interaction")[3][5].get<double>());
  EXPECT_EQ(read_npy(folder_ / "run/model.npy").sizes(), (std::vector<int64_t>{12, 2, 20}));
  EXPECT_THAT(read_text(folder_ / "run/interaction.csv"), HasSubstr("task,0,1,2,3"));
  EXPECT_EQ(json::parse(read_text(folder_ / "run/summary.json")), r);
  if (run_process({"gnuplot", "--version"}, ".").found) {
    EXPECT_THAT(read_text(folder_ / "run/interaction.svg"),
                AllOf(HasSubstr("<svg"), HasSubstr("interaction of")));
  } else {
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/interaction.svg"));
  }
}

TEST_F(Interact, TheSameBitsTwiceAndTruncationKeepsKSteps) {
  const std::string small = "--tasks 4 --clusters 2 --features 5 --iterations 5 --inner-steps 20 ";
  const json first = interact(small), again = interact(small), other = interact(small + "--seed 1");
  EXPECT_EQ(first.at("interaction"), again.at("interaction"));
  EXPECT_NE(first.at("interaction"), other.at("interaction"));
  const json truncated = interact(small + "--truncate 3");
  EXPECT_EQ(truncated.at("counts").at("cross"), 15);
  EXPECT_NE(truncated.at("interaction"), first.at("interaction"));
  // K = T from the first w is reverse mode.
  EXPECT_EQ(interact(small + "--algorithm reverse").at("interaction"), first.at("interaction"));
}

TEST_F(Interact, TasksFromAColumnAndFromAFileAreTheSame) {
  const TaskSets sets =
      draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 3, .train = 12, .test = 5});
  const std::string with = file("with.csv", table(sets.train, true)),
                    without = file("x.csv", table(sets.train, false));
  const std::string test_with = file("test.csv", table(sets.test, true));
  const std::string test_without = file("xt.csv", table(sets.test, false));
  std::string tasks, test_tasks;
  for (int64_t i = 0; i < sets.train.size(); ++i)
    tasks += std::to_string(10 + sets.train.tasks[i].item<int64_t>()) + "\n";
  for (int64_t i = 0; i < sets.test.size(); ++i)
    test_tasks += std::to_string(10 + sets.test.tasks[i].item<int64_t>()) + "\n";
  const json column =
      interact("--iterations 5 --train '" + with + "' --test '" + test_with + "' --task-column first");
  const json beside =
      interact("--iterations 5 --train '" + without + "' --train-tasks '" + file("t.csv", tasks) +
               "' --test '" + test_without + "' --test-tasks '" + file("tt.csv", test_tasks) + "'");
  EXPECT_EQ(column.at("task_names"), json::array({"10", "11", "12", "13"}));
  EXPECT_EQ(column.at("features"), 3);
  EXPECT_EQ(column.at("train_examples"), 24);
  EXPECT_EQ(column.at("valid_examples"), 24);
  EXPECT_FALSE(column.at("classes_are_tasks").get<bool>());
  EXPECT_EQ(column.at("interaction"), beside.at("interaction"));
  EXPECT_EQ(column.at("test_accuracy"), beside.at("test_accuracy"));
  EXPECT_FALSE(column.contains("true_clusters"));
  EXPECT_FALSE(column.at("pooled_test_accuracy").is_null());
}

// Columns in other units give the same answer, and what the way would ignore is refused.
TEST_F(Interact, OnesOwnTasksAreLearnedByHeldOutRows) {
  TaskSets sets = draw_clustered_tasks({.tasks = 6, .clusters = 2, .features = 4, .train = 25, .test = 50});
  const std::string train = file("train.csv", table(sets.train, true));
  const std::string test = file("test.csv", table(sets.test, true));
  const std::string files = "--task-column first --train '" + train + "' --test '" + test + "' ";
  const json r = interact(files + "--out '" + folder_ / "run" + "'");
  EXPECT_EQ(r.at("by"), "held-out");
  EXPECT_EQ(r.at("train_examples"), 150);
  EXPECT_EQ(r.at("valid_examples"), 0);
  EXPECT_LE(r.at("valid_loss"), r.at("independent_valid_loss"));
  EXPECT_GT(r.at("test_accuracy").get<double>(), r.at("pooled_test_accuracy").get<double>() + 5);
  EXPECT_EQ(read_npy(folder_ / "run/model.npy").sizes(), (std::vector<int64_t>{6, 2, 5}));
  EXPECT_EQ(json::parse(read_text(folder_ / "run/summary.json")), r);
  EXPECT_EQ(run_program("report '" + folder_ / "run" + "'").exit_code, 0);
  EXPECT_EQ(interact("--resume '" + folder_ / "run" + "'").at("interaction"), r.at("interaction"));

  for (TaskExamples* set : {&sets.train, &sets.test}) set->features.select(1, 2).mul_(1000).add_(7);
  const json other = interact("--task-column first --train '" + file("units.csv", table(sets.train, true)) +
                              "' --test '" + file("units_test.csv", table(sets.test, true)) + "'");
  EXPECT_NEAR(other.at("valid_loss").get<double>(), r.at("valid_loss").get<double>(), 1e-6);
  EXPECT_EQ(other.at("test_accuracy"), r.at("test_accuracy"));

  const Output text = run_interact(files);
  EXPECT_THAT(text.out, AllOf(HasSubstr("held out in 5 folds"), HasSubstr("Newton steps"),
                              HasSubstr("learned interaction"), HasSubstr("suggested clusters")));
  const auto error = [&](const std::string& arguments) {
    const Output output = run_program("interact --out '" + folder_ / "no" + "' " + arguments);
    EXPECT_EQ(output.exit_code, 2) << output.err;
    return output.err;
  };
  EXPECT_THAT(error(files + "--by held-out --patience 3"),
              HasSubstr("--by held-out does not use --patience"));
  EXPECT_THAT(error(files + "--folds 3 --iterations 3"), HasSubstr("--folds needs --by held-out"));
  EXPECT_THAT(error(files + "--folds 3 --valid '" + test + "'"), HasSubstr("--folds 3 with --valid"));
  EXPECT_THAT(error("--by held-out --train '" + train + "'"), HasSubstr("--task-column"));
}

// The file of validation rows judges; a model of all tasks' training rows is returned.
TEST_F(Interact, OnesOwnTasksAreJudgedByAFileOfValidationRows) {
  const TaskSets sets = draw_clustered_tasks(
      {.tasks = 6, .clusters = 2, .features = 4, .train = 25, .valid = 30, .test = 50, .seed = 3});
  const std::string files = "--task-column first --train '" + file("train.csv", table(sets.train, true)) +
                            "' --valid '" + file("valid.csv", table(sets.valid, true)) + "' ";
  const json r = interact(files + "--test '" + file("test.csv", table(sets.test, true)) + "' --out '" +
                          folder_ / "run" + "'");
  EXPECT_EQ(r.at("by"), "held-out");
  EXPECT_EQ(r.at("train_examples"), 150);
  EXPECT_EQ(r.at("valid_examples"), 180);
  EXPECT_TRUE(r.at("folds").is_null());
  const std::string returned = r.at("returned");
  const std::string prefix = returned == "independent"         ? "independent_"
                             : returned == "one model for all" ? "pooled_"
                                                               : "";
  EXPECT_LE(r.at(prefix + "valid_loss"), r.at("valid_loss"));
  EXPECT_LE(r.at(prefix + "valid_loss"), r.at("independent_valid_loss"));
  EXPECT_LE(r.at(prefix + "valid_loss"), r.at("pooled_valid_loss"));

  // What was saved says of the validation rows what the run said of them.
  const Tensor w = read_npy(folder_ / "run/model.npy");  // tasks x classes x (features + 1)
  double loss = 0;
  for (int64_t i = 0; i < sets.valid.size(); ++i) {
    const Tensor x = at::cat({sets.valid.features[i], at::ones({1}, at::kDouble)});
    const Tensor scores = w[sets.valid.tasks[i].item<int64_t>()].mv(x);
    loss -= scores.log_softmax(0)[sets.valid.labels[i].item<int64_t>()].item<double>() / 180;
  }
  EXPECT_NEAR(r.at(prefix + "valid_loss").get<double>(), loss, 1e-4);  // six digits in the files
  const Output text = run_interact(files);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("150 training, 180 validation"), HasSubstr("learned interaction")));
}

TEST_F(Interact, WithoutTasksTheClassesAreTheTasks) {
  const json r = interact("--iterations 3 --bias --train '" +
                          file("c.svm", "1 1:1\n1 1:0.9\n2 2:1\n2 2:0.8\n5 3:1\n5 3:0.7\n") + "'");
  EXPECT_TRUE(r.at("classes_are_tasks").get<bool>());
  EXPECT_EQ(r.at("task_names"), json::array({"1", "2", "5"}));
  EXPECT_EQ(r.at("features"), 4);
  EXPECT_EQ(r.at("interaction").size(), 3U);
  EXPECT_TRUE(r.at("pooled_valid_accuracy").is_null());  // one model for all classes tells none apart
  EXPECT_TRUE(r.at("test_accuracy").is_null());
}

TEST_F(Interact, PrintsTheMatrixAndThreeAccuracies) {
  const Output output = run_interact("--tasks 4 --clusters 2 --features 5 --iterations 3");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("learned interaction"), HasSubstr("independent"),
                                HasSubstr("one model for all"), HasSubstr("suggested clusters"),
                                HasSubstr("within the true clusters")));
}

TEST_F(Interact, OptionsThatDoNotFitAreNamed) {
  const std::string train = "--train '" + file("a.csv", "1,0.5,0\n1,0.25,1\n2,1,0\n2,-1,1\n") + "' ";
  EXPECT_THAT(refusal(train + "--data synthetic", 2), HasSubstr("cannot be combined"));
  EXPECT_THAT(refusal(train + "--tasks 4 --noise 1", 2),
              AllOf(HasSubstr("--tasks, --noise"), HasSubstr("--train")));
  EXPECT_THAT(refusal("--task-column shop", 2),
              AllOf(HasSubstr("--task-column"), HasSubstr("--train is missing")));
  EXPECT_THAT(refusal(train + "--task-column 0 --train-tasks t.csv", 2), HasSubstr("give one of the two"));
  EXPECT_THAT(refusal(train + "--test-tasks t.csv", 2), HasSubstr("without --test"));
  EXPECT_THAT(refusal(train + "--train-tasks t.csv --valid v.csv", 2), HasSubstr("--valid-tasks too"));
  EXPECT_THAT(refusal(train + "--valid v.csv --valid-part 0.5", 2), HasSubstr("--valid-part divides"));
  EXPECT_THAT(refusal(train + "--valid-part 1.5", 2),
              HasSubstr("--valid-part 1.5: must be above 0 and below 1"));
  EXPECT_THAT(refusal("--tasks 1", 2), HasSubstr("--tasks 1: must be"));
  EXPECT_THAT(refusal("--tasks 3 --clusters 4", 2), HasSubstr("--clusters 4: must be"));
  EXPECT_THAT(refusal("--train-examples 0", 2), HasSubstr("--train-examples 0: must be"));
  EXPECT_THAT(refusal("--patience -1", 2), HasSubstr("--patience -1: must be at least 0"));
  EXPECT_THAT(refusal("--first-regularizer 0", 2), HasSubstr("--first-regularizer 0: must be above 0"));
  EXPECT_THAT(refusal("--inner-rate 0", 2), HasSubstr("--inner-rate 0: must be above 0"));
  EXPECT_THAT(refusal("--algorithm reverse --truncate 3", 2),
              HasSubstr("--truncate 3 has no effect with reverse; only double-loop, krmd"));
  EXPECT_THAT(refusal("--algorithm magic", 2), HasSubstr("'magic' is unknown"));
}

TEST_F(Interact, FilesThatAreWrongAreNamed) {
  const auto with = [&](const std::string& name, const std::string& text, const std::string& more = "") {
    return "--train '" + file(name, text) + "' " + more;
  };
  const std::string column = "--task-column first";
  EXPECT_THAT(refusal("--train /no/such.csv", 1), HasSubstr("/no/such.csv"));
  EXPECT_THAT(refusal(with("one.csv", "7,1,0\n7,2,1\n7,0,1\n7,1,0\n", column), 1),
              AllOf(HasSubstr("one.csv"), HasSubstr("at least two tasks"), HasSubstr("only task 7")));
  EXPECT_THAT(refusal(with("few.csv", "1,1,0\n1,2,1\n2,0,1\n", column), 1),
              AllOf(HasSubstr("few.csv"), HasSubstr("task 2"), HasSubstr("found 1")));
  EXPECT_THAT(refusal(with("half.csv", "1.5,1,0\n2,2,1\n", column), 1),
              AllOf(HasSubstr("half.csv: line 1"), HasSubstr("whole number as group")));
  EXPECT_THAT(refusal(with("same.csv", "1,1,0\n2,2,1\n", "--task-column last"), 1),
              AllOf(HasSubstr("same.csv"), HasSubstr("column 2 for both")));
  EXPECT_THAT(refusal(with("none.csv", "1,1,0\n2,2,1\n", "--task-column shop"), 1),
              AllOf(HasSubstr("none.csv"), HasSubstr("group column"), HasSubstr("shop")));
  EXPECT_THAT(refusal(with("s.svm", "1 1:1\n2 1:2\n", column), 1),
              AllOf(HasSubstr("s.svm"), HasSubstr("svmlight"), HasSubstr("file of their own")));
  EXPECT_THAT(refusal(with("classes.csv", "1,2,0\n2,3,0\n"), 1),
              AllOf(HasSubstr("classes.csv"), HasSubstr("two classes")));
  EXPECT_THAT(refusal(with("zero.csv", "1,0,0\n1,0,1\n2,0,0\n2,0,1\n", column), 2), HasSubstr("all zero"));
  const std::string train = with("good.csv", "1,1,0\n1,2,1\n2,0,1\n2,1,0\n", column);
  EXPECT_THAT(refusal(train + " --valid '" + file("part.csv", "1,1,0\n1,2,1\n") + "'", 1),
              AllOf(HasSubstr("part.csv"), HasSubstr("task 2 has no validation examples")));
  EXPECT_THAT(refusal(train + " --test '" + file("new.csv", "9,1,0\n") + "'", 1),
              AllOf(HasSubstr("new.csv"), HasSubstr("found 9")));
  EXPECT_THAT(
      refusal(with("short.csv", "1,0\n2,1\n3,1\n", "--train-tasks '" + file("t.csv", "1\n2\n") + "'"), 1),
      AllOf(HasSubstr("t.csv"), HasSubstr("3 tasks"), HasSubstr("found 2")));
}

TEST_F(Interact, RatesThatExplodeEndWithTheirOwnExitCode) {
  const Output output = run_interact("--inner-rate 1e25 --iterations 2 --out '" + folder_ / "run" + "'");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, HasSubstr("rate"));
  EXPECT_EQ(json::parse(read_text(folder_ / "run/run.json")).at("status"), "failed");
}

TEST_F(Interact, FailuresNameTheOuterRateAndAreRepaired) {
  const std::string small =
      "--tasks 4 --clusters 2 --features 5 --inner-steps 10 --iterations 20 --outer-rate 1e6 ";
  const Output output = run_interact(small + "--json --out '" + folder_ / "run" + "'");
  EXPECT_EQ(output.exit_code, 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("take --outer-rate 5e+05"));
  EXPECT_EQ(output.json().at("failures").size(), 1U);
  EXPECT_EQ(output.json(), json::parse(read_text(folder_ / "run/summary.json")));
  const Output repaired = run_interact(small + "--on-failure backtrack --out '" + folder_ / "repaired" + "'");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("outer rate 1e+06 to 5e+05"));
  EXPECT_FALSE(json::parse(read_text(folder_ / "repaired/summary.json")).at("failures").empty());
}

std::ptrdiff_t records_of(const std::string& run) {
  const std::string lines = read_text(run + "/metrics.jsonl");
  return std::count(lines.begin(), lines.end(), '\n');
}

void expect_same_result(const json& a, const json& b) {
  for (const char* what : {"interaction", "rho", "best_iteration", "iterations", "test_accuracy",
                           "valid_loss", "independent_valid_loss", "pooled_valid_loss"}) {
    EXPECT_EQ(a.at(what), b.at(what)) << what;
  }
}

TEST_F(Interact, ASearchThatPatienceEndedStaysAtItsEnd) {
  const std::string run = folder_ / "run";
  const json whole =
      interact("--tasks 4 --clusters 2 --iterations 60 --inner-steps 10 --patience 3 --outer-rate 1 --out '" +
               run + "'");
  ASSERT_LT(whole.at("iterations"), 60);
  const std::ptrdiff_t records = records_of(run);
  const std::string resume = "--resume '" + run + "'";
  EXPECT_EQ(interact(resume), whole);
  // Killed while the baselines were trained.
  const std::string facts = read_text(run + "/run.json");
  const size_t at = facts.find("finished");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(run + "/run.json") << std::string(facts).replace(at, 8, "running");
  expect_same_result(interact(resume), whole);
  EXPECT_EQ(records_of(run), records);
}

// A table's tasks have no steps: there is nothing to print but how to resume.
TEST_F(Interact, ASignalBeforeThereIsAnAnswerPrintsNone) {
  std::string rows = "a,b,shop,bought\n";
  for (int i = 0; i < 3000; ++i) {
    rows +=
        fmt::format("{},{},s{},{}\n", (i * 37) % 101, (i * 53) % 89, i % 6, (i * 7) % 5 > 2 ? "yes" : "no");
  }
  put(folder_ / "shops.csv", rows);
  const std::string run = folder_ / "run";
  Background program("interact --threads 1 --quiet --train " + folder_ / "shops.csv" +
                         " --task-column shop --label-column bought --out " + run,
                     folder_ / "err");
  ASSERT_TRUE(program.wait_until([&] { return std::filesystem::exists(run + "/run.json"); }));
  const int status = program.end(SIGINT);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("bilevel interact --resume " + run));
}

// In the only iteration, whose record comes after the checkpoint; and in the baselines.
TEST_F(Interact, ASignalAtAnyTimeCostsNothing) {
  const std::string long_one = "--tasks 6 --clusters 2 --iterations 1 --inner-steps 3000 ";
  const json whole = interact(long_one);
  for (const int after : {1, 2}) {
    SCOPED_TRACE(after);
    const std::string run = folder_ / ("run" + std::to_string(after));
    Background program("interact --threads 1 --quiet " + long_one + "--out " + run, folder_ / "err");
    ASSERT_TRUE(program.wait_until([&] { return records_of(run) >= after; }));
    const int status = program.end(SIGINT);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("bilevel interact --resume " + run));
    EXPECT_EQ(json::parse(read_text(run + "/run.json")).at("status"), "interrupted");
    EXPECT_EQ(records_of(run), after);
    expect_same_result(interact("--resume '" + run + "'"), whole);
  }
}

// A longer run from the checkpoint of a shorter one would be another run; the same one, cut off before its
// last word, goes on to the same numbers.
TEST_F(Interact, ARunThatWasKilledGoesOnToTheSameBits) {
  const std::string small =
      "--tasks 4 --clusters 2 --features 5 --iterations 6 --inner-steps 20 --save-every 0 ";
  const json whole = interact(small + "--out '" + folder_ / "whole" + "'");
  interact(small + "--out '" + folder_ / "cut" + "'");
  std::filesystem::rename(folder_ / "cut/checkpoint.previous", folder_ / "cut/checkpoint");
  const json again = interact("--resume '" + folder_ / "cut" + "'");
  EXPECT_EQ(again.at("interaction"), whole.at("interaction"));
  EXPECT_EQ(again.at("test_accuracy"), whole.at("test_accuracy"));
  EXPECT_EQ(again.at("best_iteration"), whole.at("best_iteration"));
}

}  // namespace
}  // namespace bilevel::test
