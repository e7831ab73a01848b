// A run's folder can be read whatever happened to the process that wrote it, and a run in it goes on to the
// same bits.
#include "bilevel/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "bilevel/data/file_error.h"
#include "bilevel/run/solve_checkpoint.h"
#include "tests/algorithms/known_optima.h"
#include "tests/data/files.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

Checkpoint holding(double value) {
  Checkpoint checkpoint;
  checkpoint.tensors["x"] = vec({value});
  return checkpoint;
}

TEST(RunFolder, says_how_it_stands) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("a/b");
  {
    RunFolder run =
        RunFolder::create(path, {.command = "solve", .seed = 7, .config = {{"command", "solve"}}});
    EXPECT_EQ(read_run(path).status, RunStatus::running);
    run.end(RunStatus::failed, "it was too much", {{"answer", 42}});
  }
  const RunFacts facts = read_run(path);
  EXPECT_EQ(facts.status, RunStatus::failed);
  EXPECT_EQ(facts.message, "it was too much");
  EXPECT_EQ(facts.command, "solve");
  EXPECT_EQ(facts.seed, 7U);
  EXPECT_EQ(facts.machine.threads, machine_facts().threads);
  EXPECT_EQ(read_json_file(path + "/summary.json").at("answer"), 42);
  EXPECT_THAT(message([&] { RunFolder::create(path, {.command = "solve"}); }),
              AllOf(HasSubstr(path), HasSubstr("resume = ")));
}

// Killed before its next save, a run that went on from the one before has that one still.
TEST(RunFolder, a_damaged_checkpoint_does_not_replace_the_good_one) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  RunFolder run = RunFolder::create(path, {.command = "solve"});
  run.save(holding(1));
  run.save(holding(2));
  append(path + "/checkpoint", "more");
  EXPECT_FALSE(run.load()->warning.empty());
  const std::optional<Checkpoint> again = run.load();
  EXPECT_TRUE(again->warning.empty());
  EXPECT_EQ(again->tensors.at("x").item<double>(), 1);
  run.save(holding(3));
  EXPECT_EQ(read_checkpoint(previous_checkpoint(path + "/checkpoint")).tensors.at("x").item<double>(), 1);
}

TEST(RunFolder, a_killed_run_is_told_from_one_that_works) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  { const RunFolder run = RunFolder::create(path, {.command = "solve"}); }
  EXPECT_EQ(read_run(path).status, RunStatus::killed);
  const RunFolder again = RunFolder::resume(path);
  EXPECT_EQ(read_run(path).status, RunStatus::running);
  EXPECT_THAT(message<std::runtime_error>([&] { RunFolder::resume(path); }), HasSubstr("another process"));
}

TEST(RunFolder, a_folder_without_a_run_is_told_by_its_type) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("none");
  try {
    RunFolder::resume(path);
    FAIL() << "there is no run in it";
  } catch (const MissingRunError& error) {
    EXPECT_EQ(error.folder(), path);
    EXPECT_EQ(error.what(),
              fmt::format("resume = {}: there is no run.json in it; give the folder of a run", path));
  }
  EXPECT_THROW(read_run(path), MissingFileError);
}

TEST(RunFolder, records_after_the_last_checkpoint_come_once) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  {
    RunFolder run = RunFolder::create(path, {.command = "solve"});
    run.record({{"step", 0}});
    run.save(holding(1));
    run.record({{"step", 1}});
    run.save(holding(2));
    run.record({{"step", 2}});
  }
  append(path + "/metrics.jsonl", "{\"step\": 3, \"loss\": 0.");  // torn by a kill
  const Metrics killed = read_metrics(path);
  EXPECT_EQ(killed.lines.size(), 3U);
  EXPECT_EQ(killed.torn, 1);

  RunFolder run = RunFolder::resume(path);
  const auto checkpoint = run.load();
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(number(checkpoint->tensors.at("x")), 2);
  run.record({{"step", 2}});
  const Metrics metrics = read_metrics(path);
  EXPECT_EQ(metrics.torn, 0);
  ASSERT_EQ(metrics.lines.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(metrics.lines[static_cast<size_t>(i)].at("step"), i);
}

TEST(RunFolder, without_a_checkpoint_it_begins_anew) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  RunFolder::create(path, {.command = "solve"}).record({{"step", 0}});
  RunFolder run = RunFolder::resume(path);
  EXPECT_FALSE(run.load());
  EXPECT_TRUE(read_metrics(path).lines.empty());
}

TEST(RunFolder, what_a_kill_left_unfinished_is_no_obstacle) {
  const TemporaryFolder temporary;
  // Between the two files of a new run.
  temporary.put("run/config.json", R"({"command": "solve", "options": {}})");
  const std::string path = temporary.at("run");
  { RunFolder::create(path, {.command = "solve"}).save(holding(1)); }
  // While others were written.
  for (const char* name : {"checkpoint.tmp-123", "run.json.tmp-123-4", "notes.tmp-mine"}) {
    temporary.put(std::string("run/") + name, "half");
  }
  RunFolder run = RunFolder::resume(path);
  EXPECT_FALSE(exists(path + "/checkpoint.tmp-123"));
  EXPECT_FALSE(exists(path + "/run.json.tmp-123-4"));
  EXPECT_TRUE(exists(path + "/notes.tmp-mine"));
  EXPECT_EQ(number(run.load()->tensors.at("x")), 1);
}

TEST(RunFolder, a_config_of_something_else_is_not_overwritten) {
  const TemporaryFolder temporary;
  for (const std::string text : {R"({"editor": "vi"})", "no JSON"}) {
    temporary.put("mine/config.json", text);
    EXPECT_THAT(message([&] { RunFolder::create(temporary.at("mine"), {.command = "solve"}); }),
                AllOf(HasSubstr(temporary.at("mine")), HasSubstr("config.json")));
    EXPECT_EQ(bytes_of(temporary.at("mine/config.json")), text);
  }
}

TEST(RunFolder, files_of_something_else_are_not_overwritten) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("mine");
  temporary.put("mine/weights.csv", "a week's work");
  const auto refusal = [&] { return message([&] { RunFolder::create(path, {.command = "clean"}); }); };
  EXPECT_EQ(refusal(), "out = " + path +
                           ": the folder holds other files (weights.csv), which the run could overwrite; "
                           "give a new or an empty folder");
  EXPECT_EQ(bytes_of(path + "/weights.csv"), "a week's work");
  EXPECT_FALSE(exists(path + "/config.json"));
  EXPECT_FALSE(exists(path + "/lock"));
  for (const char* name : {"x.npy", "a.txt", "notes", "suspects/001.png"})
    temporary.put("mine/" + std::string(name), "");
  EXPECT_THAT(refusal(), HasSubstr("(a.txt, notes, suspects and 2 more)"));
}

// A process that was killed before its run.json, a file manager, and a shell that opened a log for our
// output.
TEST(RunFolder, files_that_no_run_overwrites_are_no_obstacle) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  for (const char* name : {"lock", "run.json.tmp-12-3", ".directory", "clean.log"}) {
    temporary.put("run/" + std::string(name), "");
  }
  temporary.put("run/config.json", R"({"command": "solve", "options": {}})");
  { const RunFolder run = RunFolder::create(path, {.command = "solve"}); }
  EXPECT_EQ(read_run(path).command, "solve");
}

TEST(RunFolder, an_exception_ends_the_run_as_failed) {
  const TemporaryFolder temporary;
  RunFolder run = RunFolder::create(temporary.at("run"), {.command = "solve"});
  EXPECT_THROW(work_in(run, [] { throw std::runtime_error("the disk is full"); }), std::runtime_error);
  EXPECT_EQ(read_run(run.path()).status, RunStatus::failed);
  EXPECT_EQ(read_run(run.path()).message, "the disk is full");
}

// A copy of what nests as deep would overflow the stack, and many keys take quadratic time.
TEST(RunFolder, json_beyond_its_bounds_is_refused) {
  const TemporaryFolder temporary;
  const auto says = [&](const std::string& text) {
    const std::string path = temporary.put("a.json", text);
    const std::string found = message<std::runtime_error>([&] { read_json_file(path); });
    EXPECT_THAT(found, HasSubstr(path + ": expected JSON"));
    return found;
  };
  const auto nested = [](size_t levels) {
    return R"({"a": )" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  const auto with_keys = [](int count) {
    std::string text = R"({"list": [{"b": 1}, {"b": 1}])";
    for (int i = 1; i < count; ++i) text += fmt::format(R"(, "{}": {{}})", i);
    return text + "}";
  };
  EXPECT_EQ(read_json_file(temporary.put("b.json", nested(60))).size(), 1U);
  EXPECT_THAT(says(nested(70)), HasSubstr("at most 64 levels"));
  EXPECT_THAT(says(nested(400'000)), HasSubstr("at most 64 levels"));
  EXPECT_EQ(read_json_file(temporary.put("b.json", with_keys(1000))).size(), 1000U);
  EXPECT_THAT(says(with_keys(1001)), HasSubstr("at most 1000 keys"));
  EXPECT_THAT(says(R"({"a": 1e999})"), HasSubstr("number overflow"));
  temporary.put("metrics.jsonl", R"({"step": 1})" + std::string("\n") + nested(400'000) + "\n");
  EXPECT_EQ(read_metrics(temporary.path()).lines.size(), 1U);
  EXPECT_EQ(read_metrics(temporary.path()).torn, 1);
}

TEST(RunFolder, damaged_facts_name_the_file) {
  const TemporaryFolder temporary;
  const std::string path = temporary.at("run");
  { const RunFolder run = RunFolder::create(path, {.command = "solve"}); }
  const std::string threads =
      R"({"format": 1, "command": "solve", "status": "failed", "machine": {"threads": )";
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"format": 99, "command": "solve"})"),
        std::string(R"({"format": 1, "command": 3, "status": "running", "machine": {}})"),
        threads + "200000}}", threads + "0}}"}) {
    std::ofstream(path + "/run.json") << text;
    EXPECT_THAT(message<std::runtime_error>([&] { read_run(path); }), HasSubstr("run.json")) << text;
    EXPECT_THAT(message<std::runtime_error>([&] { RunFolder::resume(path); }), HasSubstr("run.json")) << text;
  }
}

// Every algorithm, stopped in the middle, stored in a file and read again.
class EverySolve : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySolve, goes_on_to_the_same_bits) {
  const TemporaryFolder temporary;
  const Known known = known_ridge();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate *= 0.2;
  settings.inner.steps = 3;
  settings.outer.optimizer = "adam";
  settings.outer.rate = 1e-3;
  const auto algorithm = make_algorithm(GetParam(), settings);
  const SolveOptions options{.iterations = 12,
                             .records = 4,
                             .seed = 0xfedcba9876543210U,
                             .batches = {.inner_batch = 4, .outer_batch = 4}};
  const SolveSummary whole = solve(*known.problem, *algorithm, options, {}, known.x, known.w);

  int64_t steps = 0;
  const std::string path = temporary.at("checkpoint");
  SolveHooks hooks;
  hooks.interrupted = [&] { return ++steps == 7; };
  hooks.save = [&](const SolveState& state) {
    Checkpoint checkpoint;
    put_solve(checkpoint, state);
    save_checkpoint(path, checkpoint);
  };
  const SolveSummary half = solve(*known.problem, *algorithm, options, hooks, known.x, known.w);
  EXPECT_EQ(half.reason, StopReason::interrupted);
  EXPECT_EQ(half.state.iteration, 7);
  const SolveSummary rest =
      continue_solve(*known.problem, *algorithm, options, take_solve(load_checkpoint(path)));

  EXPECT_EQ(rest.reason, whole.reason);
  EXPECT_EQ(rest.state.iteration, 12);
  EXPECT_TRUE(at::equal(rest.state.x, whole.state.x));
  EXPECT_TRUE(at::equal(rest.state.inner.w, whole.state.inner.w));
  EXPECT_EQ(rest.statuses, whole.statuses);
  EXPECT_EQ(oracle_calls(rest.counts), oracle_calls(whole.counts));
  EXPECT_EQ(rest.counts.samples, whole.counts.samples);
  ASSERT_EQ(rest.records.size(), whole.records.size());
  for (size_t i = 0; i < whole.records.size(); ++i) {
    EXPECT_EQ(rest.records[i].iteration, whole.records[i].iteration);
    EXPECT_EQ(rest.records[i].outer_loss, whole.records[i].outer_loss);
    EXPECT_EQ(rest.records[i].direction_norm, whole.records[i].direction_norm);
    EXPECT_EQ(rest.records[i].metrics, whole.records[i].metrics);
    EXPECT_EQ(oracle_calls(rest.records[i].counts), oracle_calls(whole.records[i].counts));
  }
}

std::vector<std::string> every_algorithm() {
  std::vector<std::string> names;
  for (const AlgorithmRow& row : algorithm_rows()) names.push_back(row.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(RunFolder, EverySolve, ::testing::ValuesIn(every_algorithm()),
                         [](const auto& chosen) {
                           std::string name = chosen.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SolveCheckpoint, another_algorithms_state_is_refused) {
  const Known known = known_ridge();
  const auto soba = make_algorithm("soba", settings_for(known));
  const auto fsla = make_algorithm("fsla", settings_for(known));
  SolveState state;
  SolveHooks hooks;
  hooks.save = [&](const SolveState& now) { state = now; };
  solve(*known.problem, *soba, {.iterations = 1}, hooks, known.x, known.w);
  EXPECT_THAT(message([&] { continue_solve(*known.problem, *fsla, {.iterations = 2}, state); }),
              AllOf(HasSubstr("soba"), HasSubstr("fsla")));
}

TEST(SolveCheckpoint, a_checkpoint_of_something_else_is_refused) {
  EXPECT_THAT(message<std::runtime_error>([&] { take_solve(Checkpoint{}); }), HasSubstr("checkpoint"));
}

TEST(SolveCheckpoint, numbers_that_cannot_be_are_refused) {
  const Known known = known_ridge();
  const auto soba = make_algorithm("soba", settings_for(known));
  Checkpoint good;
  SolveHooks hooks;
  hooks.save = [&](const SolveState& now) { put_solve(good, now); };
  solve(*known.problem, *soba, {.iterations = 1}, hooks, known.x, known.w);
  EXPECT_EQ(take_solve(good).so_far.algorithm, "soba");
  const auto spoilt = [&](const char* part, const nlohmann::json& value) {
    Checkpoint bad = good;
    bad.metadata["solve"][part] = value;
    return message<std::runtime_error>([&] { take_solve(bad); });
  };
  EXPECT_THAT(spoilt("bound", {{"kind", 7}, {"value", 1.0}}), HasSubstr("unknown kind 7"));
  EXPECT_THAT(spoilt("recorded", 1e300), HasSubstr("expected whole numbers that fit, found 1e+300"));
  EXPECT_THAT(spoilt("statuses", {{"converged", 0.5}}), HasSubstr("expected whole numbers that fit"));
}

}  // namespace
}  // namespace bilevel::test
