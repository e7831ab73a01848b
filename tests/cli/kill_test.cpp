// Runs that are killed at any moment, even while they write a checkpoint, leave a folder that can be read,
// and go on to the bits of a run that nothing disturbed.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/problems/synthetic_classes.h"
#include "bilevel/run/checkpoint.h"
#include "tests/cli/background.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Another one after every start: run.json is written beside and renamed.
ino_t facts_of(const std::string& folder) {
  struct ::stat status {};
  return ::stat((folder + "/run.json").c_str(), &status) == 0 ? status.st_ino : 0;
}

// Nothing of what a clock says, and no name of a folder.
json timeless(json value) {
  if (value.is_object()) {
    for (auto it = value.begin(); it != value.end();) {
      const bool drop =
          it.key() == "folder" || it.key().starts_with("seconds") || it.key().ends_with("_seconds");
      it = drop ? value.erase(it) : std::next(it);
    }
  }
  if (value.is_structured()) {
    for (json& part : value) part = timeless(part);
  }
  return value;
}
json timeless_lines(const std::string& path) {
  json lines = json::array();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(timeless(json::parse(line)));
  return lines;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

void expect_the_same_run(const std::string& whole, const std::string& killed) {
  const Checkpoint expected = load_checkpoint(whole + "/checkpoint"),
                   found = load_checkpoint(killed + "/checkpoint");
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  ASSERT_FALSE(expected.tensors.empty());
  for (const auto& [name, tensor] : expected.tensors) {
    if (name == "solve/records") continue;  // with what a clock says: their numbers are compared as metrics
    EXPECT_TRUE(same_bits(tensor, found.tensors.at(name))) << name;
  }
  EXPECT_EQ(timeless_lines(killed + "/metrics.jsonl"), timeless_lines(whole + "/metrics.jsonl"));
  EXPECT_EQ(timeless(json::parse(read_text(killed + "/summary.json"))),
            timeless(json::parse(read_text(whole + "/summary.json"))));
  EXPECT_EQ(json::parse(read_text(killed + "/run.json")).at("status"), "finished");
  // config.json, and what the command writes of its own: x.npy, weights.csv, genotype.txt.
  const std::set<std::string> seen = {"run.json",      "lock",        "checkpoint", "checkpoint.previous",
                                      "metrics.jsonl", "summary.json"};
  for (const auto& entry : fs::directory_iterator(whole)) {
    const std::string name = entry.path().filename();
    if (seen.contains(name)) continue;
    EXPECT_EQ(read_text(killed + "/" + name), read_text(entry.path())) << name;
  }
  for (const auto& entry : fs::directory_iterator(killed)) {
    const std::string name = entry.path().filename();
    // A file that was written twice keeps the one before.
    EXPECT_TRUE(fs::exists(whole + "/" + name) || name.ends_with(".previous")) << entry.path() << " was left";
  }
}

bool writes_a_checkpoint(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("checkpoint.tmp-")) return true;
  }
  return false;
}

// One command, and how often it is killed.
struct KilledJob {
  std::string arguments;  // the command first; no --out
  int kills = 2;
};

class KillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const LabelledExamples train =
        draw_gaussian_classes({.classes = 3, .features = 4, .separation = 2}, 60, 1, "train");
    const LabelledExamples valid =
        draw_gaussian_classes({.classes = 3, .features = 4, .separation = 2}, 30, 1, "valid");
    write_npy(folder_ / "x.npy", train.features);
    write_npy(folder_ / "y.npy", train.labels);
    write_npy(folder_ / "xv.npy", valid.features);
    write_npy(folder_ / "yv.npy", valid.labels);
    nas::SyntheticImages drawn{.samples = 80, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder_ / "images", idx({80, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder_ / "labels", idx({80}, images.labels));
  }

  // Commands whose runs are killed; another one is another line.
  std::vector<KilledJob> jobs() const {
    const std::string own = " --train " + folder_ / "x.npy" + " --train-labels " + folder_ / "y.npy" +
                            " --valid " + folder_ / "xv.npy" + " --valid-labels " + folder_ / "yv.npy";
    const std::string images = " --data " + folder_ / "images" + " --labels " + folder_ / "labels" +
                               " --channels 2 --cells 1 --crop-padding 1";
    const std::string search = "search" + images + " --batch 4 --epochs 4 --eigenvalue-products 2 --method ";
    const std::string solve =
        "solve --problem hyper-cleaning --iterations 60 --records 15 --inner-batch 8 --outer-batch 8 "
        "--inner-rate 0.3 --save-every ";
    const std::string learn =
        "learn --data blobs --queries 5 --filters 16 --valid-tasks 5 --test-tasks 10 --iterations 40 "
        "--records 8 --save-every ";
    const std::string loop = " --inner-steps 5 --algorithm ", single = " --algorithm ";
    return {
        {"clean --iterations 40 --inner-steps 10 --records 10 --save-every 0" + own},
        {"clean --iterations 60 --algorithm soba --inner-batch 8 --outer-batch 8 --save-every 0.01" + own},
        {"tune --iterations 40 --records 10 --save-every 0" + own},
        {solve + "0" + loop + "aid-cg"},
        {solve + "0.03" + loop + "itd"},
        {solve + "0" + single + "aid-increasing --growth 3"},
        {solve + "0.01" + loop + "double-loop --method nystrom --outer-optimizer adam"},
        {solve + "0" + loop + "reverse"},
        {solve + "0.02" + loop + "krmd --inner-optimizer nesterov"},
        {"solve --problem hyper-cleaning --iterations 30 --inner-rate 0.3 --save-every 0 --algorithm hoag"},
        {solve + "0" + single + "darts"},
        {solve + "0.01" + loop + "stocbio"},
        {solve + "0" + single + "ttsa"},
        {solve + "0" + single + "fsla"},
        {solve + "0.01" + single + "soba"},
        {solve + "0" + single + "saba"},
        {solve + "0" + single + "sustain"},
        {solve + "0" + single + "vrbo --period 5"},
        {solve + "0" + single + "f2sa"},
        {solve + "0.02" + single + "bome"},
        {search + "idarts --save-every 0"},
        {search + "darts --save-every 0.05"},
        {search + "gdas --save-every 0"},
        {search + "random --samples 3 --save-every 0"},
        {"train" + images +
             " --batch 8 --epochs 6 --save-every 0 --arch "
             "'|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_1x1~2|'",
         4},
        {learn + "0 --learner aid"},
        {learn + "0.02 --learner maml"},
        {learn + "0 --learner imaml"},
        {"interact --data synthetic --tasks 4 --clusters 2 --iterations 12 --inner-steps 20 --save-every 0"},
    };
  }

  std::string start(const KilledJob& job, const std::string& folder) const {
    return job.arguments + " --threads 1 --quiet --json --out " + folder;
  }
  static std::string command_of(const KilledJob& job) {
    return job.arguments.substr(0, job.arguments.find(' '));
  }
  // How the run in the folder goes on: a process that was killed before its run.json had not begun one.
  std::string go_on(const KilledJob& job, const std::string& folder) const {
    if (facts_of(folder) == 0) return start(job, folder);
    // Where and how often it saves is of the process, not of the run.
    const size_t every = job.arguments.find("--save-every ");
    const size_t end = job.arguments.find(' ', every + 13);
    return command_of(job) + " --quiet --json --resume " + folder + " " +
           job.arguments.substr(every, end == std::string::npos ? end : end - every);
  }

  Background in_background(const std::string& arguments) const {
    const auto work = [&] {
      std::vector<std::string> words = plain_words("bilevel " + arguments).value();
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      return cli::run_command_line(static_cast<int>(words.size()), pointers.data());
    };
    return Background(work, folder_ / "err");
  }

  struct Length {
    double before = 0, after = 0;  // seconds until run.json is there, and from then to the run's end
  };
  Length run_whole(const KilledJob& job, const std::string& folder) const {
    const auto begin = Clock::now();
    Background program = in_background(start(job, folder));
    Length length;
    program.wait_until([&] { return facts_of(folder) != 0; });
    length.before = seconds_since(begin);
    // It is written again at the end; unloading the libraries after it takes as long as a short run.
    program.wait_until([&, began = facts_of(folder)] { return facts_of(folder) != began; });
    length.after = seconds_since(begin) - length.before;
    const int status = program.wait();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_text(folder_ / "err");
    return length;
  }

  // Whether the kill came before the process ended by itself.
  bool kill_at(const std::string& arguments, const std::string& folder, double moment, bool anywhere) {
    const ino_t before = facts_of(folder);
    Background program = in_background(arguments);
    if (!anywhere && !program.wait_until([&] { return facts_of(folder) != before; })) return false;
    sleep_for(moment);
    return WIFSIGNALED(program.end(SIGKILL));
  }

  // Whether there is a run that is still to be finished.
  bool expect_readable(const std::string& folder) {
    const bool began = facts_of(folder) != 0;
    Output shown = run_program("show --json " + folder);
    // A program that the run had just begun to start, such as `dot`, holds the run's lock for a moment
    // longer.
    for (int i = 0; i < 50 && began && shown.exit_code == 0 && shown.json().at("status") == "running"; ++i) {
      sleep_for(0.1);
      shown = run_program("show --json " + folder);
    }
    EXPECT_EQ(shown.exit_code, began ? 0 : 2) << shown.err;
    if (!began) ++before_run_;
    if (!began || HasFailure()) return false;
    const std::string status = shown.json().at("status");
    EXPECT_TRUE(status == "killed" || status == "finished") << status;
    if (status == "finished") ++after_end_;
    if (status == "finished") return false;
    if (!fs::exists(folder + "/checkpoint") && !fs::exists(folder + "/checkpoint.previous")) ++before_first_;
    if (writes_a_checkpoint(folder)) ++while_writing_;
    return true;
  }

  double uniform() { return static_cast<double>(random_() >> 11U) / 9007199254740992.0; }

  const TemporaryFolder folder_;
  std::mt19937_64 random_{20260131};
  int kills_ = 0, while_writing_ = 0, before_run_ = 0, before_first_ = 0, after_end_ = 0;
};

// Two kills a run, the second one of what went on after the first.
TEST_F(KillTest, AKilledRunGoesOnToTheSameBits) {
  int number = 0;
  for (const KilledJob& job : jobs()) {
    SCOPED_TRACE(job.arguments);
    const std::string name = folder_ / ("run" + std::to_string(number++));
    const Length length = run_whole(job, name + "-whole");
    if (HasFailure()) return;
    int left = job.kills;
    for (int attempt = 0; left > 0 && attempt < 10; ++attempt) {
      const std::string run = name + "-" + std::to_string(attempt);
      for (int i = 0; i < 2 && left > 0; ++i) {
        // After a kill there is less to do.
        const double share = (i == 0 ? 1 : 0.5) / (1 + 0.5 * attempt);
        const bool anywhere = uniform() < 0.1;
        const double moment = uniform() * share * (anywhere ? length.before + length.after : length.after);
        if (!kill_at(go_on(job, run), run, moment, anywhere)) break;
        // A kill before there is a run, or after its end, is none of a run.
        if (expect_readable(run)) {
          --left;
          ++kills_;
        }
        if (HasFailure()) return;
      }
      const Output output = run_program(go_on(job, run));
      ASSERT_EQ(output.exit_code, 0) << output.err;
      EXPECT_EQ(timeless(output.json()), timeless(json::parse(read_text(run + "/summary.json"))));
      expect_the_same_run(name + "-whole", run);
      if (HasFailure()) return;
    }
    EXPECT_EQ(left, 0) << "it ended too early to be killed";
  }
  std::cout << kills_ << " kills of a run that was not finished, " << while_writing_
            << " of them while a checkpoint was written and " << before_first_
            << " before its first one; besides, " << before_run_ << " before there was a run and "
            << after_end_ << " after its end\n";
  EXPECT_GE(kills_, 50);
}

// Checkpoints of some megabytes, and a kill as soon as one is begun.
TEST_F(KillTest, AKillWhileACheckpointIsWritten) {
  const int64_t examples = 60'000;
  const Tensor labels = at::arange(examples, at::kLong).remainder(3);
  write_npy(folder_ / "large.npy", at::stack({labels.to(at::kDouble), at::ones({examples}, at::kDouble)}, 1));
  write_npy(folder_ / "large-labels.npy", labels);
  const KilledJob job{
      "solve --problem hyper-cleaning --algorithm soba --inner-batch 8 --outer-batch 8 --iterations 25 "
      "--inner-rate 0.1 --outer-optimizer adam --save-every 0 --train-features " +
      folder_ / "large.npy" + " --train-labels " + folder_ / "large-labels.npy" + " --valid-features " +
      folder_ / "large.npy" + " --valid-labels " + folder_ / "large-labels.npy"};
  run_whole(job, folder_ / "whole");
  const std::string run = folder_ / "killed";
  int torn = 0;
  for (int attempt = 0; attempt < 6 && torn < 3; ++attempt) {
    Background program(go_on(job, run), folder_ / "err");
    int seen = 0;
    bool before = false;
    program.wait_until([&] {
      const bool now = writes_a_checkpoint(run);
      seen += now && !before ? 1 : 0;
      before = now;
      return now && seen >= 2;
    });
    const int status = program.end(SIGKILL);
    if (!WIFSIGNALED(status)) break;
    if (writes_a_checkpoint(run)) ++torn;
    expect_readable(run);
  }
  EXPECT_GE(torn, 1) << "no kill fell into the writing of a checkpoint";
  ASSERT_EQ(run_program(go_on(job, run)).exit_code, 0);
  expect_the_same_run(folder_ / "whole", run);
}

}  // namespace
}  // namespace bilevel::test
