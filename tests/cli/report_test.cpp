// `bilevel report` as a user meets it: pages of small runs, what is on them, that a hostile folder stays
// text, and what a browser makes of them.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/png.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/problems/label_noise.h"
#include "tests/cli/image_files.h"
#include "tests/cli/pages.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

std::string page_of(const std::string& folder, const std::string& more = "") {
  const Output output = run_program("report '" + folder + "' " + more);
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return read_page(folder + "/report.html");
}

class ReportTest : public ::testing::Test {
 protected:
  void write_images() const {
    constexpr int64_t samples = 80;
    nas::SyntheticImages drawn{.samples = samples, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    const Tensor bytes = (images.images * 40 + 128).clamp(0, 255);
    put(folder_ / "images", idx({samples, 8, 8}, bytes));
    put(folder_ / "labels", idx({samples}, images.labels));
    Random random(2);
    put(folder_ / "noisy", idx({samples}, replace_labels(images.labels, 4, 0.5, random).labels));
  }
  std::string search(const std::string& name) const {
    const Output output = run_program(
        "search --quiet --epochs 3 --seed 3 --method idarts --channels 2 --cells 1 --batch 4 --threads 1 "
        "--crop-padding 1 --eigenvalue-products 3 --alpha-rate 0.05 --data " +
        folder_ / "images" + " --labels " + folder_ / "labels" + " --out " + folder_ / name);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return folder_ / name;
  }
  std::string clean(const std::string& name) const {
    const Output output = run_program(
        "clean --quiet --iterations 40 --records 10 --threads 1 --threshold 0 --train " + folder_ / "images" +
        " --train-labels " + folder_ / "noisy" + " --valid " + folder_ / "images" + " --valid-labels " +
        folder_ / "labels" + " --out " + folder_ / name);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return folder_ / name;
  }
  std::string solve(const std::string& name, const std::string& options) const {
    (void)run_program("solve --threads 1 --quiet " + options + " --out " + folder_ / name);
    return folder_ / name;
  }

  const TemporaryFolder folder_;
};

// The pages of a search, a cleaning, a solve and a comparison, in Chromium at 1400 and at 400 pixels.
TEST_F(ReportTest, PagesHoldWhatTheRunsMade) {
  write_images();
  const bool plots = has_program("gnuplot"), graphs = has_program("dot");
  const std::string found = search("found"), cleaned = clean("cleaned");
  const std::string ridge = solve("ridge", "--problem ridge --iterations 40 --records 10");
  const std::string soba = solve("soba", "--problem ridge --algorithm soba --iterations 40 --records 10");

  const std::string of_search = page_of(found);
  expect_well_made(of_search);
  const json summary = json::parse(read_text(found + "/summary.json"));
  EXPECT_THAT(of_search,
              AllOf(HasSubstr("idarts searches nasbench201 for images"),
                    HasSubstr("chose <code>" + summary.at("genotype").get<std::string>() + "</code>"),
                    HasSubstr("class=\"status finished\""), HasSubstr("id=\"cells\""),
                    HasSubstr("id=\"alpha\""), HasSubstr("<code>--alpha-rate</code></th><td>0.05"),
                    HasSubstr("gradients of the inner loss"), HasSubstr("<details>")));
  if (plots) {
    EXPECT_THAT(of_search, HasSubstr("0 \u2192 3"));
    for (const char* picture :
         {"<h3>Loss</h3>", "<h3>Operations: mean weight over all edges</h3>",
          "<h3>Operations: share of the cell&#39;s edges</h3>", "<h3>Guard: beta-decay</h3>",
          "id=\"axis-steps\" checked", "id=\"axis-calls\"", "id=\"axis-seconds\"",
          "alt=\"Weights of the operations on 2 \u2192 3 by epoch"}) {
      EXPECT_THAT(of_search, HasSubstr(picture));
    }
    EXPECT_EQ(count(of_search, "card heat"), 6U);
  }
  if (graphs) {
    EXPECT_THAT(of_search, HasSubstr("alt=\"The cell as a graph: |"));
  }

  const std::string of_clean = page_of(cleaned);
  expect_well_made(of_clean);
  EXPECT_THAT(of_clean,
              AllOf(HasSubstr("Cleaning the labels of images"), HasSubstr(" of 80 examples are suspect"),
                    HasSubstr("id=\"suspects\""), HasSubstr("given: "), HasSubstr("trained on")));
  const json suspects = json::parse(read_text(cleaned + "/suspects.json")).at("suspects");
  ASSERT_GT(suspects.size(), 0U);
  if (has_png()) {
    EXPECT_EQ(count(of_clean, "data:image/png;base64,iVBORw0KGgo"), suspects.size());
    // The first picture is the example that its line names, pixel for pixel.
    const Tensor picture = read_png(cleaned + "/suspects/001.png");
    const std::string file = read_text(folder_ / "images");
    const auto first = static_cast<size_t>(suspects[0].at("index").get<int64_t>()) * 64 + 16;
    ASSERT_EQ(picture.sizes(), (std::vector<int64_t>{1, 8, 8}));
    EXPECT_EQ(file.substr(first, 64),
              std::string(reinterpret_cast<const char*>(picture.data_ptr<uint8_t>()), 64));
  }
  if (plots) {
    EXPECT_THAT(of_clean, HasSubstr("<h3>Learned weights of the examples</h3>"));
  }

  const std::string of_ridge = page_of(ridge);
  expect_well_made(of_ridge);
  EXPECT_THAT(of_ridge, AllOf(HasSubstr("Outer loss went from 6.078 to "), HasSubstr("in 40 steps")));
  if (plots) {
    EXPECT_THAT(of_ridge, AllOf(HasSubstr("Norm of the direction"), HasSubstr("id=\"learned\"")));
  }

  const Output both = run_program("report " + ridge + " " + soba);
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, ::testing::StartsWith(folder_ / "comparison.html\n"));
  const std::string compared = read_page(folder_ / "comparison.html");
  expect_well_made(compared);
  EXPECT_THAT(compared, AllOf(HasSubstr("2 runs compared"),
                              HasSubstr("<code>--algorithm</code></th><td>aid-cg</td><td>soba</td>"),
                              HasSubstr("<th scope=\"row\">outer loss</th>"),
                              Not(HasSubstr("<code>--problem</code>"))));
  if (plots) {
    EXPECT_THAT(compared, AllOf(HasSubstr("alt=\"Outer loss"), HasSubstr("</span>soba</li>")));
  }

  if (!has_program("chromium")) GTEST_SKIP() << "chromium is not installed: nobody looked at the pages";
  const std::vector<std::string> pages{found + "/report.html", cleaned + "/report.html",
                                       ridge + "/report.html", folder_ / "comparison.html"};
  for (const int width : {1400, 400}) {
    SCOPED_TRACE(width);
    const json seen = look_at(folder_, pages, width);
    ASSERT_EQ(seen.size(), pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      SCOPED_TRACE(pages[i]);
      EXPECT_LE(seen[i].at("wide"), width) << "one would have to scroll sideways";
      EXPECT_EQ(seen[i].at("broken"), 0) << "pictures that the browser cannot show";
      EXPECT_EQ(seen[i].at("empty"), json::array());
      EXPECT_GE(seen[i].at("letters"), 12.5) << "too small to read";
      if (plots) {
        EXPECT_GT(seen[i].at("images"), 2);
        EXPECT_EQ(seen[i].at("before"), "view-steps");
        EXPECT_EQ(seen[i].at("after"), "view-calls");
      }
    }
    for (const char* id : {"result", "curves", "cells", "alpha", "configuration", "cost"}) {
      EXPECT_THAT(seen[0].at("ids"), ::testing::Contains(id));
    }
    for (const char* id : {"result", "curves", "weights", "suspects", "configuration", "cost"}) {
      EXPECT_THAT(seen[1].at("ids"), ::testing::Contains(id));
    }
  }
  // As people open them: nothing is complained about, and a picture is kept for them to look at.
  for (const auto& [name, page, width] :
       {std::tuple{"search-1400", pages[0], "1400,3600"}, std::tuple{"search-400", pages[0], "400,7000"},
        std::tuple{"clean-1400", pages[1], "1400,3000"}, std::tuple{"clean-400", pages[1], "400,6000"}}) {
    SCOPED_TRACE(name);
    const std::string picture = screenshots() + "/" + name + ".png";
    fs::remove(picture);
    const Browser seen = browse("file://" + page, "--screenshot='" + picture + "' --window-size=" + width);
    EXPECT_EQ(seen.exit_code, 0) << seen.log;
    EXPECT_THAT(seen.log, AllOf(Not(HasSubstr("CONSOLE")), Not(HasSubstr("Refused to"))));
    EXPECT_TRUE(fs::exists(picture) && fs::file_size(picture) > 10'000) << seen.log;
  }
}

// Whatever a folder says is text on the page, and a command of no program.
TEST_F(ReportTest, AHostileFolderStaysText) {
  const std::string evil =
      "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>`touch pwned`@x\n$(touch pwned)";
  const std::string folder = folder_ / "evil";
  std::string metrics;
  for (int i = 1; i <= 3; ++i) {
    metrics += json{{"step", i},
                    {"seconds", i},
                    {evil, 1.0 / i},
                    {"valid_loss", i == 2 ? 1e308 : 2.0 * i},
                    {"operation_weights", {{evil, 0.1 * i}, {"b_c", 0.3}}},
                    {"alpha", {1, "x"}},
                    {"counts", evil}}
                   .dump() +
               "\n";
  }
  metrics += "{\"step\": 4, \"valid_lo";
  const json config = {
      {"command", evil}, {"options", {{"--" + evil, {evil}}}}, {"effective", {{"--space", evil}}}};
  const json summary = {{"method", evil},
                        {"data", evil},
                        {"genotype", evil},
                        {"warnings", {evil}},
                        {"task_names", {evil, evil}},
                        {"problem", evil},
                        {"benchmark", {{evil + "_test", 3}}},
                        {"flagged", 1},
                        {"train_examples", 2},
                        {"failures", {{{"iteration", evil}, {"what", evil}, {"cause", 3}}}}};
  for (const char* command : {"search", "clean", "interact", "train", "solve", "<script>alert(3)</script>"}) {
    SCOPED_TRACE(command);
    fs::remove_all(folder);
    make_run(folder, command, config, summary, metrics, "failed", evil);
    put(folder + "/suspects.json",
        json{{"suspects", {{{"index", 0}, {"given", evil}, {"suggested", evil}, {"truth", evil}}, 7}}}
            .dump());
    put(folder + "/suspects/001.png", "<svg onload=alert(1)>");
    put(folder + "/x.npy", "not an array");
    put(folder + "/weights.csv", evil);
    write_npy(folder + "/interaction.npy", at::tensor({0.0, 1.0, 0.5, 0.0}, at::kDouble).reshape({2, 2}));
    const std::string page = page_of(folder);
    expect_well_made(page);
    EXPECT_EQ(count(page, "<img src=x"), 0U);
    EXPECT_EQ(count(page, "image/png"), 0U);
    EXPECT_THAT(page, AllOf(HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"), HasSubstr("id=\"failure\""),
                            HasSubstr("1 torn line"), HasSubstr("id=\"failures\"")));
    EXPECT_FALSE(fs::exists("pwned") || fs::exists(folder + "/pwned"));
  }
  const Output both =
      run_program("report " + folder + " " + folder + " --json --out " + folder_ / "both.html");
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.json().at("report"), folder_ / "both.html");
  expect_well_made(read_page(folder_ / "both.html"));
}

TEST_F(ReportTest, AnInteractionIsAHeatMap) {
  const std::string folder = folder_ / "interact";
  make_run(folder, "interact", json::object(), {{"task_names", {"cats & dogs", "b_c", "d"}}}, "");
  write_npy(folder + "/interaction.npy", at::arange(9, at::kDouble).reshape({3, 3}));
  const std::string page = page_of(folder);
  expect_well_made(page);
  EXPECT_THAT(page, HasSubstr("No steps have been recorded"));
  if (!has_program("gnuplot")) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_THAT(page, HasSubstr("alt=\"Interaction of 3 tasks, from 1 to 7\""));
}

// Without the programs that draw, the page says what to install.
TEST_F(ReportTest, WhatCannotBeDrawnIsSaid) {
  const std::string folder = folder_ / "bare";
  const std::string cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|avg_pool_3x3~2|";
  make_run(folder, "search", json::object(), {{"space", "nasbench201"}, {"genotype", cell}},
           "{\"step\":1,\"epoch\":1,\"valid_loss\":2}\n{\"step\":2,\"epoch\":2,\"valid_loss\":1}\n",
           "killed");
  const char* path = std::getenv("PATH");
  const std::string kept = path == nullptr ? "" : path;
  fs::create_directories(folder_ / "empty");
  ::setenv("PATH", (folder_ / "empty").c_str(), 1);
  const Output output = run_program("report " + folder);
  ::setenv("PATH", kept.c_str(), 1);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("gnuplot-nox"));
  const std::string page = read_page(folder + "/report.html");
  expect_well_made(page);
  EXPECT_THAT(page, AllOf(HasSubstr("apt-get install gnuplot-nox"), HasSubstr("apt-get install graphviz"),
                          HasSubstr(cell), HasSubstr("--resume " + folder)));
}

TEST_F(ReportTest, WhatIsNoRunIsNamed) {
  const Output missing = run_program("report " + folder_ / "nowhere");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, AllOf(HasSubstr(folder_ / "nowhere"), HasSubstr("no run.json")));
  put(folder_ / "torn/run.json", "{\"format\": 1, ");
  const Output torn = run_program("report " + folder_ / "torn");
  EXPECT_EQ(torn.exit_code, 1);
  EXPECT_THAT(torn.err, HasSubstr("torn/run.json"));
}

}  // namespace
}  // namespace bilevel::test
