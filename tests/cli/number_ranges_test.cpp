// Every option of every command that takes a number, at numbers that nobody means: it is refused by its name
// at once, or the job starts, and stops on a signal. The options are the program's own, so that a new one is
// covered by being there.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/problems/synthetic_classes.h"
#include "cli/program.h"
#include "tests/cli/forked.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

struct Numeric {
  Words command;  // "data", "show"
  std::string option;
  bool whole = false, seed = false;
};

void collect(const CLI::App& app, const Words& command, std::vector<Numeric>& found) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool number = type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
    if (!number || option->get_expected_max() == 0) continue;
    found.push_back({command, option->get_name(), !type.starts_with("FLOAT"), type.starts_with("UINT")});
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    Words below = command;
    if (!sub->get_name().empty()) below.push_back(sub->get_name());
    collect(*sub, below, found);
  }
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The program without its jobs: what parsing alone says.
class Parser {
 public:
  // What is required and never given is missed after all numbers were read, and before a job starts.
  Parser() : program_(cli::make_program(exit_code_)) { program_->add_option("--never", never_)->required(); }
  std::vector<Numeric> numbers() const {
    std::vector<Numeric> found;
    collect(*program_, {}, found);
    return found;
  }
  // Empty where the number is taken.
  std::string refusal(const Numeric& number, const std::string& value) {
    Words words = number.command;
    words.push_back(number.option + "=" + value);
    std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
    try {
      program_->parse(words);
    } catch (const CLI::RequiredError&) {
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::string never_;
  int exit_code_ = 0;
  std::unique_ptr<CLI::App> program_;
};

TEST(NumberRanges, whatIsNoNumberIsRefusedByTheOptionsName) {
  Parser parser;
  const std::vector<Numeric> numbers = parser.numbers();
  EXPECT_GE(numbers.size(), 250U);
  for (const Numeric& number : numbers) {
    for (const std::string value : {"nan", "-nan", "inf", "-inf", "1e999", "1x", "ten"}) {
      EXPECT_THAT(parser.refusal(number, value), StartsWith(number.option + " " + value + ": must be a"))
          << text_of(number.command) << " with " << value;
    }
    if (!number.whole) continue;
    for (const std::string value : {"010", "0x10", "1.5", "1e3", "99999999999999999999"}) {
      EXPECT_THAT(parser.refusal(number, value), StartsWith(number.option + " " + value + ": must be a"))
          << text_of(number.command) << " with " << value;
    }
    if (!number.seed) continue;
    EXPECT_EQ(parser.refusal(number, "-1"),
              number.option + " -1: must be a whole number, 0 to 18446744073709551615");
    EXPECT_EQ(parser.refusal(number, "18446744073709551615"), "");
  }
}

TEST(NumberRanges, theMessageSaysTheBound) {
  Parser parser;
  const auto said = [&](const std::string& command, const std::string& option, const std::string& value) {
    return parser.refusal({{command}, option}, value);
  };
  EXPECT_EQ(said("clean", "--damping", "nan"), "--damping nan: must be a finite number, at least 0");
  EXPECT_EQ(said("clean", "--classes", "1000000000"),
            "--classes 1000000000: must be at least 0 and at most 100000");
  EXPECT_EQ(said("solve", "--save-every", "-1"), "--save-every -1: must be at least 0");
  EXPECT_EQ(said("solve", "--outer-rate", "0"), "--outer-rate 0: must be above 0");
  EXPECT_EQ(said("solve", "--tolerance", "-1"), "--tolerance -1: must be at least 0");
  EXPECT_EQ(said("diagnose", "--damping", "1e308"), "--damping 1e308: must be at least 0 and at most 1e+30");
  EXPECT_EQ(said("clean", "--threshold", "-1e308"),
            "--threshold -1e308: must be at least -1e+30 and at most 1e+30");
  EXPECT_EQ(said("solve", "--averaging", "1.5"), "--averaging 1.5: must be above 0 and at most 1");
  EXPECT_EQ(said("solve", "--inner-steps", "9223372036854775807"),
            "--inner-steps 9223372036854775807: must be at least 0 and at most 1000000");
  for (const std::string command : {"train", "search", "count"}) {
    EXPECT_EQ(said(command, "--cells", "2000000000"),
              "--cells 2000000000: must be at least 0 and at most 1000");
  }
}

// ---- jobs ----

struct WorkingJob {
  Words command, arguments;
  bool has_folder = false;  // takes --out DIR, and has a run.json there once it works
};

class Jobs {
 public:
  Jobs() {
    const LabelledExamples examples =
        draw_gaussian_classes({.classes = 2, .features = 3, .separation = 2}, 20, 1, "train");
    write_npy(folder_ / "x.npy", examples.features);
    write_npy(folder_ / "y.npy", examples.labels);
    nas::SyntheticImages drawn{.samples = 40, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 2;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder_ / "images", idx({40, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder_ / "labels", idx({40}, images.labels));
  }
  std::string place(const std::string& name) const { return folder_ / name; }

  // The smallest job of the command that reads the option.
  WorkingJob job(const Numeric& number) const {
    const std::string command = text_of(number.command);
    const Words images = {"--data", place("images"), "--labels", place("labels")};
    const auto all = [](Words words, const Words& more) {
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    const Words own = {"--train", place("x.npy"), "--train-labels", place("y.npy"),
                       "--valid", place("x.npy"), "--valid-labels", place("y.npy")};
    const std::map<std::string, Words> bases = {
        {"clean", all(own, {"--iterations", "2", "--inner-steps", "2", "--final-steps", "2"})},
        {"tune", all(own, {"--iterations", "2", "--inner-steps", "2"})},
        {"interact",
         {"--tasks", "2", "--clusters", "1", "--features", "2", "--train-examples", "4", "--valid-examples",
          "4", "--test-examples", "4", "--iterations", "2", "--inner-steps", "2"}},
        {"solve", {"--problem", "ridge", "--iterations", "2"}},
        {"compare",
         {"--problem", "ridge", "--algorithms", "aid-cg", "--outer-rate", "0.01", "--budget-calls", "20",
          "--seeds", "0-0"}},
        {"check", {"--problem", "ridge", "--methods", "cg,truncated", "--inner-steps", "2"}},
        {"diagnose", {"--problem", "ridge", "--inner-steps", "5", "--calls", "20"}},
        {"search", all(images, {"--channels", "2", "--cells", "1", "--epochs", "1", "--batch", "8",
                                "--crop-padding", "0"})},
        {"train",
         all(images, {"--channels", "2", "--cells", "1", "--epochs", "1", "--batch", "8", "--crop-padding",
                      "0", "--arch", "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"})},
        {"learn",
         {"--data", "blobs", "--iterations", "1", "--valid-tasks", "2", "--test-tasks", "2", "--filters", "4",
          "--meta-batch", "2", "--inner-steps", "2"}},
        {"reproduce", {"krmd:toy"}},
        {"count", {"--arch", "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"}},
        {"data show", images},
        {"query", {"--benchmark", place("labels")}},
    };
    const auto base = bases.find(command);
    if (base == bases.end()) return {};  // a new command: give it a job above
    WorkingJob job{number.command, base->second};
    const std::set<std::string> without_folder = {"check", "diagnose", "count", "data show", "query"};
    job.has_folder = !without_folder.contains(command);
    if (job.has_folder) job.arguments = all(job.arguments, {"--out", "run"});
    if (command != "count" && command != "data show" && command != "query") {
      job.arguments = all(job.arguments, {"--threads", "1"});
    }
    for (const auto& [option, value] : needed(number)) set(job.arguments, option, value);
    return job;
  }

  static void set(Words& arguments, const std::string& option, const std::string& value) {
    const auto at = std::find(arguments.begin(), arguments.end(), option);
    if (at != arguments.end()) arguments.erase(at, at + 2);
    arguments.push_back(option);
    arguments.push_back(value);
  }

 private:
  // What makes a job read the option at all.
  static std::map<std::string, std::string> needed(const Numeric& number) {
    const std::string& command = number.command.front();
    const std::map<std::string, std::string> algorithms = {{"--strong-convexity", "stocbio"},
                                                           {"--hessian-batch", "stocbio"},
                                                           {"--momentum-decay", "fsla"},
                                                           {"--averaging", "ma-soba"},
                                                           {"--period", "vrbo"},
                                                           {"--large-batch", "vrbo"},
                                                           {"--penalty", "f2sa"},
                                                           {"--penalty-growth", "f2sa"},
                                                           {"--joint-rate", "bome"},
                                                           {"--barrier", "bome"},
                                                           {"--growth", "aid-increasing"},
                                                           {"--linear-rate", "soba"},
                                                           {"--truncate", "krmd"}};
    if (command == "solve" || command == "compare") {
      const std::string choice = command == "solve" ? "--algorithm" : "--algorithms";
      if (const auto found = algorithms.find(number.option); found != algorithms.end()) {
        return {{choice, found->second}};
      }
    }
    if (command == "solve" || command == "compare" || command == "check" || command == "diagnose") {
      const std::set<std::string> network = {"--channels", "--cells", "--image-size", "--images"};
      if (network.contains(number.option)) {
        return {{"--problem", "supernet"}, {"--channels", "2"}, {"--image-size", "4"}, {"--images", "4"}};
      }
    }
    if (number.option == "--inner-momentum") return {{"--inner-optimizer", "heavy-ball"}};
    if (number.option == "--outer-momentum") return {{"--outer-optimizer", "sgd"}};
    if (number.option == "--outer-rates" || number.option == "--inner-factors")
      return {{"--search-seconds", "0.01"}};
    return {};
  }
  const TemporaryFolder folder_;
};

// What one number came to; empty where all is well.
class Trial {
 public:
  Trial(Numeric number, std::string value, const WorkingJob& job, const std::string& folder)
      : number_(std::move(number)),
        value_(std::move(value)),
        has_folder_(job.has_folder),
        process_(arguments(number_, value_, job), folder) {}

  // Sends signals on the way.
  bool ended() {
    if (process_.ended()) return true;
    const double now = process_.seconds();
    started_ = started_ || std::filesystem::exists(process_.folder() + "/run/run.json");
    if (signals_ == 0 && now > patience && (started_ || !has_folder_ || now > latest_start)) interrupt(now);
    if (signals_ == 1 && now > signalled_ + patience) interrupt(now);
    if (signals_ == 2 && now > signalled_ + 20) {
      process_.signal(SIGKILL);
      ++signals_;
    }
    return false;
  }
  std::string fault() const {
    const std::string err = read_text(process_.folder() + "/err");
    const auto with = [&](const std::string& what) {
      return text_of(number_.command) + " " + number_.option + " " + value_ + ": " + what +
             "\n  stderr: " + err;
    };
    const int status = process_.status();
    if (signals_ > 2) return with("does not stop on two signals");
    if (signals_ > 0 && has_folder_ && !started_)
      return with("did not start within " + std::to_string(latest_start) + " s");
    if (signals_ > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) return "";
    if (!WIFEXITED(status)) return with("ended by signal " + std::to_string(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (signals_ > 0 && code == 130) return "";
    if (code == 2 && err.find(number_.option) == std::string::npos) return with("refused without its name");
    if (code == 2 && process_.processor_seconds() > refusal_seconds)
      return with("refused too late: " + std::to_string(process_.processor_seconds()));
    if (code != 0 && code != 2 && code != 3) return with("exit code " + std::to_string(code));
    return "";
  }
  double processor_seconds() const { return process_.processor_seconds(); }
  double seconds() const { return ended_at_; }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr double refusal_seconds = 10, patience = 3, latest_start = 30;
#else
  static constexpr double refusal_seconds = 1, patience = 0.25, latest_start = 5;
#endif
  static Words arguments(const Numeric& number, const std::string& value, const WorkingJob& job) {
    Words words = number.command, rest = job.arguments;
    Jobs::set(rest, number.option, value);
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  }
  void interrupt(double now) {
    process_.signal(SIGINT);
    signalled_ = now;
    ++signals_;
  }
  Numeric number_;
  std::string value_;
  bool has_folder_, started_ = false;
  int signals_ = 0;
  double signalled_ = 0, ended_at_ = 0;
  Forked process_;
};

TEST(NumberRanges, aJobStartsAndStopsOrItsNumberIsRefused) {
  Parser parser;
  const Jobs jobs;
  const TemporaryFolder folder;
  std::vector<std::pair<std::unique_ptr<Trial>, std::string>> running;
  const auto finish = [&](size_t most) {
    while (running.size() > most) {
      for (size_t i = 0; i < running.size();) {
        if (!running[i].first->ended()) {
          ++i;
          continue;
        }
        const std::string fault = running[i].first->fault();
        EXPECT_EQ(fault, "");
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (running.size() > most) ::usleep(2000);
    }
  };
  const size_t at_once = std::max(1U, std::thread::hardware_concurrency());
  int parsed = 0, forked = 0;
  for (const Numeric& number : parser.numbers()) {
    if (number.option == "--threads") continue;  // OpenMP's do not survive a fork; the parser's bound is all
    const Words values = number.seed    ? Words{"0", "18446744073709551615"}
                         : number.whole ? Words{"-1", "0", "2147483647", "9223372036854775807"}
                                        : Words{"-1", "0", "1e-308", "1e308"};
    for (const std::string& value : values) {
      if (!parser.refusal(number, value).empty()) {
        ++parsed;
        continue;
      }
      const WorkingJob job = jobs.job(number);
      ASSERT_FALSE(job.command.empty()) << "no job for " << text_of(number.command) << " " << number.option;
      const std::string place = folder / std::to_string(forked++);
      std::filesystem::create_directory(place);
      finish(at_once - 1);
      running.emplace_back(std::make_unique<Trial>(number, value, job, place), "");
    }
  }
  finish(0);
  std::cout << parsed << " numbers were refused by the parser, " << forked << " went to a job\n";
}

}  // namespace
}  // namespace bilevel::test
