// Every line under "Examples:" in the help of every command does what it says: it is run in a folder that has
// the files it names, at a small size where its own takes long. Lines that need data which no test can make,
// a GPU or the network are only parsed, with all names and bounds checked; the test prints which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/problems/synthetic_classes.h"
#include "cli/program.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

namespace fs = std::filesystem;
using Line = std::vector<std::string>;

// ---- the lines ----

// The commands as they are typed, "data show" too, with the ends of their help texts.
void collect_footers(const CLI::App& app, const std::string& name,
                     std::map<std::string, std::string>& found) {
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_name().empty()) continue;  // a heading of options
    const std::string typed = name.empty() ? below->get_name() : name + " " + below->get_name();
    found[typed] = below->get_footer();
    collect_footers(*below, typed, found);
  }
}

// A line that ends with a backslash goes on in the next one.
std::vector<std::string> example_lines(const std::string& footer) {
  std::vector<std::string> lines;
  const size_t heading = std::min(footer.find("Examples:\n"), footer.find("Example:\n"));
  std::istringstream text(footer.substr(std::min(footer.size(), heading)));
  bool goes_on = false;
  std::string line;
  std::getline(text, line);  // the heading
  while (std::getline(text, line)) {
    if (line.empty()) break;
    line.erase(0, line.find_first_not_of(' '));
    if (goes_on) {
      lines.back() += line;
    } else {
      lines.push_back(line);
    }
    goes_on = lines.back().back() == '\\';
    if (goes_on) lines.back().pop_back();
  }
  return lines;
}

const std::map<std::string, std::vector<std::string>>& examples() {
  static const auto all = [] {
    int exit_code = 0;
    std::map<std::string, std::string> footers;
    collect_footers(*cli::make_program(exit_code), "", footers);
    std::map<std::string, std::vector<std::string>> lines;
    for (const auto& [command, footer] : footers) lines[command] = example_lines(footer);
    return lines;
  }();
  return all;
}

// ---- how a line is run, where it is not run as it stands ----

struct Treatment {
  std::string begin;                                              // of the line, behind "bilevel "
  std::vector<std::pair<std::string, std::string>> smaller = {};  // options that take less time
  std::string only_parsed = {};                                   // why
};

const std::string fashion = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";

const std::vector<Treatment>& treatments() {
  static const std::vector<Treatment> rows = {
      {"adapt --run runs/learn-20260101-120000-0 --support few.csv", {}, "needs a run of learn on a table"},
      {"check --problem ridge", {{"--sweep", "K=0..10"}}},
      {"check --problem mlp", {{"--inner-steps", "5"}}},
      {"check --problem supernet", {}, "takes a minute"},
      {"clean --train x.npy", {}},
      {"clean --data fashion-mnist",
       {{"--train-size", "200"}, {"--valid-size", "100"}, {"--iterations", "2"}}},
      {"compare --problem hyper-cleaning", {{"--budget-seconds", "0.1"}}},
      {"compare --problem ridge", {{"--budget-calls", "200"}}},
      {"data get", {}, "fetches from the network"},
      {"data show --data cifar10", {}, "needs CIFAR-10"},
      {"diagnose --problem hyper-cleaning", {}, "takes a minute"},
      {"diagnose --problem mlp", {}, "takes a minute"},
      {"interact --data synthetic", {{"--iterations", "2"}}},
      {"interact --train", {{"--iterations", "2"}}},
      {"launch", {}, "would start this test program again"},
      {"learn --learner aid", {{"--iterations", "2"}}},
      {"learn --data sinusoids", {{"--iterations", "2"}}},
      {"learn --data omniglot", {}, "needs Omniglot"},
      {"learn --data my-classes/",
       {{"--iterations", "1"},
        {"--ways", "2"},
        {"--filters", "4"},
        {"--meta-batch", "2"},
        {"--valid-tasks", "2"},
        {"--test-tasks", "2"}}},
      {"query --benchmark nasbench201.csv --best", {}, "needs NAS-Bench-201's table"},
      {"query --benchmark nasbench201.csv --arch", {}, "needs NAS-Bench-201's table"},
      {"reproduce krmd:toy", {}, "takes half a minute"},
      {"search --data fashion-mnist", {{"--train-size", "200"}, {"--batch", "32"}, {"--epochs", "1"}}},
      {"search --space darts",
       {{"--image-size", "8"}, {"--epochs", "1"}, {"--channels", "2"}, {"--cells", "3"}}},
      {"search --data cifar10", {}, "needs CIFAR-10 and a GPU"},
      {"solve --problem", {{"--iterations", "2"}}},
      {"train --genotype", {}, "needs CIFAR-10 and a GPU"},
      {"train --arch",
       {{"--epochs", "1"}, {"--train-size", "60"}, {"--batch", "20"}, {"--channels", "4"}, {"--cells", "1"}}},
      {"tune --data newsgroups", {}, "needs 20 Newsgroups"},
  };
  return rows;
}

// ---- the files that lines name ----

const std::string example_cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|";

std::string points(int count, const char* columns, const std::function<std::string(int, int)>& row) {
  std::string text = std::string(columns) + "\n";
  for (int i = 0; i < count; ++i) text += row(i, i % 2 == 0 ? 1 : -1) + "\n";
  return text;
}

// Stripes that stand or lie, of one width per class.
std::string example_stripes(int kind, int place) {
  std::string pixels;
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) {
      const int at = kind % 2 == 0 ? x : y, width = 1 + kind / 2;
      pixels += static_cast<char>((at + place) / width % 2 == 0 ? 200 + place : 20 + x);
    }
  }
  return grey_png(8, 8, pixels);
}

void write_classes(const std::string& folder, int classes, int each) {
  for (int kind = 0; kind < classes; ++kind) {
    for (int i = 0; i < each; ++i) {
      put(folder + "/kind" + std::to_string(kind) + "/" + std::to_string(i) + ".png",
          example_stripes(kind, i));
    }
  }
}

void write_files(const std::string& folder) {
  const auto classes = [&](const char* name, const char* labels, int64_t count) {
    const LabelledExamples drawn =
        draw_gaussian_classes({.classes = 2, .features = 3, .separation = 3}, count, 1, name);
    write_npy(folder + "/" + name, drawn.features);
    write_npy(folder + "/" + labels, drawn.labels);
  };
  classes("x.npy", "y.npy", 60);
  classes("xv.npy", "yv.npy", 30);
  classes("xt.npy", "yt.npy", 30);
  const auto flower = [](int i, int side) {
    return std::to_string(side * 2 + i % 7) + "," + std::to_string(i % 5) + (side > 0 ? ",tulip" : ",rose");
  };
  put(folder + "/noisy.csv", points(40, "length,width,class", flower));
  put(folder + "/clean.csv", points(30, "length,width,class", flower));
  put(folder + "/new.csv", "length,width\n5,1\n-3,2\n");
  put(folder + "/houses.csv", points(40, "rooms,age,price", [](int i, int) {
        return std::to_string(i % 5) + "," + std::to_string(i % 7) + "," +
               std::to_string(10 + 3 * (i % 5) - i % 7);
      }));
  put(folder + "/shops.csv", points(60, "shop,price,size,bought", [](int i, int) {
        return std::string(i % 3 == 0 ? "north" : "south") + "," + std::to_string(i % 9 - 4) + "," +
               std::to_string(i % 4) + (i % 9 > 4 ? ",yes" : ",no");
      }));
  const auto sparse = [](int i, int side) {
    return (side > 0 ? "1 1:" : "0 1:") + std::to_string(side * 2 + i % 3) + " 2:" + std::to_string(i % 5) +
           (i % 4 == 0 ? " 3:1" : "");
  };
  put(folder + "/train.svm", points(40, "# words of posts", sparse));
  put(folder + "/test.svm", points(20, "# words of posts", sparse));
  put(folder + "/words.txt", "free\nmeeting\nprize\n");
  put(folder + "/cells.txt", example_cell + "\n");
  fs::create_directories(folder + "/data");
  for (const char* name : {"/my-photos", "/pictures", "/my-letters"}) write_classes(folder + name, 2, 12);
  write_classes(folder + "/my-classes", 20, 20);
  for (const char* name : {"/new", "/photos"}) {
    for (int i = 0; i < 3; ++i)
      put(folder + name + "/" + std::to_string(i) + ".png", example_stripes(i % 2, i));
  }
}

// Runs that lines go on with, show, or predict by, and the commands that make them.
const std::map<std::string, std::string>& earlier_runs() {
  static const std::string
      solve = "solve --problem ridge --iterations 3 --algorithm ",
      search = "search --data my-photos/ --channels 2 --cells 1 --epochs 1 --batch 8 --method ",
      photos = " --data my-photos/ --channels 2 --cells 1 --epochs 1 --batch 8";
  static const std::map<std::string, std::string> runs = {
      {"cleaned", "clean --train noisy.csv --valid clean.csv --label-column class"},
      {"tuned", "tune --train clean.csv --label-column class"},
      {"trained", "train --arch '" + example_cell + "'" + photos},
      {"runs/learn-20260101-120000-0",
       "learn --data my-classes/ --image-size 8 --network mlp --learner aid --ways 2 --shots 2 --queries 2 "
       "--filters 4 --meta-batch 2 "
       "--valid-tasks 2 --test-tasks 2 --iterations 2"},
      {"runs/solve-20260101-120000-0", solve + "aid-cg"},
      {"runs/reproduce-20260101-120000-0", "reproduce idarts:figure3"},
      {"runs/search-20260101-120000-0", search + "idarts"},
      {"runs/soba", solve + "soba"},
      {"runs/stocbio", solve + "stocbio"},
      {"runs/idarts-0", search + "idarts"},
      {"runs/darts-0", search + "darts"},
      {"studies/one", solve + "aid-cg"},
  };
  return runs;
}

// ---- running ----

// In a folder, without a process of its own.
Output run_in(const std::string& folder, const Line& words) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  const int threads = at::get_num_threads();
  Output output;
  output.exit_code = cli::run(words, output.out, output.err);
  at::set_num_threads(threads);
  fs::current_path(before);
  return output;
}

void set_option(Line& words, const std::string& flag, const std::string& value) {
  const auto found = std::find(words.begin(), words.end(), flag);
  if (found == words.end()) {
    words.push_back(flag);
    words.push_back(value);
  } else {
    *(found + 1) = value;
  }
}

class ExampleLines : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    kept_ = std::make_unique<TemporaryFolder>();
    write_files(kept_->path());
  }
  static void TearDownTestSuite() { kept_.reset(); }

  // All files, and the earlier runs that the line names or may find.
  static void prepare(const std::string& here, const std::string& line) {
    for (const auto& entry : fs::directory_iterator(kept_->path())) {
      const std::string name = entry.path().filename();
      const bool is_run = earlier_runs().contains(name) || name == "runs" || name == "studies";
      if (!is_run) fs::copy(entry.path(), fs::path(here) / name, fs::copy_options::recursive);
    }
    for (const auto& [run, command] : earlier_runs()) {
      const bool wanted =
          line.find(" " + run) != std::string::npos || line.find("/" + run) != std::string::npos ||
          (run.find("-0") != std::string::npos &&
           line.find(run.substr(0, run.size() - 1) + "*") != std::string::npos) ||
          (run == "studies/one" && line == "runs studies --json") || (run == "runs/soba" && line == "runs");
      if (!wanted || line.find("--out " + run) != std::string::npos) continue;
      if (!fs::exists(*kept_ / run)) {
        const Output made =
            run_in(kept_->path(), *plain_words(command + " --quiet --threads 1 --out " + run));
        ASSERT_EQ(made.exit_code, 0) << command << '\n' << made.err;
        if (run == "trained") {
          run_in(kept_->path(),
                 *plain_words("export --run trained --format onnx --output trained/model.onnx"));
        }
      }
      fs::create_directories((fs::path(here) / run).parent_path());
      fs::copy(*kept_ / run, fs::path(here) / run, fs::copy_options::recursive);
    }
  }

  static std::unique_ptr<TemporaryFolder> kept_;
};
std::unique_ptr<TemporaryFolder> ExampleLines::kept_;

// Words with a star become the names that they stand for, as a shell does.
Line expanded(const std::string& line, const std::string& folder) {
  std::string plain = line;
  std::replace(plain.begin(), plain.end(), '*', '\1');
  const auto words = plain_words(plain);
  EXPECT_TRUE(words) << line << ": not a line that can be typed";
  Line all;
  for (const std::string& word : words.value_or(Line{})) {
    const size_t star = word.find('\1');
    if (star == std::string::npos) {
      all.push_back(word);
      continue;
    }
    const fs::path begin = word.substr(0, star);
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / begin.parent_path())) {
      const std::string name = entry.path().filename();
      if (name.starts_with(begin.filename().string())) all.push_back(begin.parent_path() / name);
    }
  }
  return all;
}

// Everything but the command itself: a callback that comes before its own ends it. (Its own holds the
// options, and must stay.)
std::string parse_error(const Line& words) {
  int exit_code = 0;
  const auto program = cli::make_program(exit_code);
  const std::function<void(CLI::App&)> end_after_parsing = [&](CLI::App& app) {
    for (CLI::App* below : app.get_subcommands({})) {
      if (below->get_name().empty()) continue;  // a heading of options
      below->parse_complete_callback([] { throw CLI::Success(); });
      end_after_parsing(*below);
    }
  };
  end_after_parsing(*program);
  Line reversed(words.rbegin(), words.rend());
  try {
    program->parse(reversed);
  } catch (const CLI::Success&) {
    return "";
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "it was not parsed";
}

const Treatment* treatment_of(const std::string& line) {
  const auto found = std::find_if(treatments().begin(), treatments().end(),
                                  [&](const Treatment& row) { return line.starts_with(row.begin); });
  return found == treatments().end() ? nullptr : &*found;
}

TEST_P(ExampleLines, Run) {
  const std::string command = GetParam();
  const std::vector<std::string>& lines = examples().at(command);
  EXPECT_FALSE(lines.empty()) << "bilevel " << command << " --help has no example";
  for (const std::string& typed : lines) {
    SCOPED_TRACE(typed);
    ASSERT_TRUE(typed.starts_with("bilevel " + command));
    const std::string line = typed.substr(8, typed.find("  #") - 8);  // without a remark
    const TemporaryFolder here;
    prepare(here.path(), line);
    Line words = expanded(line, here.path());
    const Treatment* treatment = treatment_of(line);
    std::string only_parsed = treatment == nullptr ? "" : treatment->only_parsed;
    if (line.find("fashion-mnist") != std::string::npos && !fs::exists(fashion))
      only_parsed = "needs Fashion-MNIST";
    if (line.find("onnx") != std::string::npos && !fs::exists(here / "trained/model.onnx")) {
      only_parsed = "needs ONNX's protobuf";
    }
    if (!only_parsed.empty()) {
      std::cout << "only parsed (" << only_parsed << "): " << typed << '\n';
      EXPECT_EQ(parse_error(words), "");
      continue;
    }
    if (treatment != nullptr) {
      for (const auto& [flag, value] : treatment->smaller) set_option(words, flag, value);
    }
    const Output output = run_in(here.path(), words);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    EXPECT_FALSE(output.out.empty());
    const bool is_json = std::find(words.begin(), words.end(), "--json") != words.end();
    EXPECT_TRUE(!is_json || nlohmann::json::accept(output.out)) << output.out;
  }
}

std::vector<std::string> commands_with_help() {
  std::vector<std::string> names;
  for (const auto& [name, lines] : examples()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Help, ExampleLines, ::testing::ValuesIn(commands_with_help()), [](const auto& row) {
  std::string name = row.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(ExampleLinesTable, EveryRowIsOfALine) {
  for (const Treatment& row : treatments()) {
    size_t lines = 0;
    for (const auto& [command, all] : examples()) {
      for (const std::string& line : all) lines += line.starts_with("bilevel " + row.begin) ? 1 : 0;
    }
    EXPECT_GT(lines, 0U) << row.begin;
  }
}

}  // namespace
}  // namespace bilevel::test
