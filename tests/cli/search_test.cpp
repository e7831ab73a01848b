// `bilevel search` as a user meets it, on small made-up images in IDX files.

#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/nas/synthetic_images.h"
#include "tests/cli/background.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string table_of_201() {
  const char* shared = std::getenv("BILEVEL_SHARED");
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  const std::string folder =
      shared != nullptr ? shared : std::string(source != nullptr ? source : ".") + "/../shared";
  const std::string path = folder + "/data/nasbench201.csv";
  return std::filesystem::exists(path) ? path : "";
}

// Grey PNG files of 8 x 8 and of 6 x 6 pixels.
const std::string png_of_8 =
    "89504e470d0a1a0a0000000d4948445200000008000000080800000000e164e1570000000e4944415478da6368800206ca180080"
    "84"
    "200110e86a170000000049454e44ae426082";
const std::string png_of_6 =
    "89504e470d0a1a0a0000000d4948445200000006000000060800000000c5a7b0940000000e4944415478da6368000306c214007a"
    "39"
    "12016c9636b80000000049454e44ae426082";
std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

class SearchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr int64_t samples = 80;  // 16 are held out for tests; 32 for the weights, 32 for alpha
    nas::SyntheticImages drawn{.samples = samples, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder_ / "images", idx({samples, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder_ / "labels", idx({samples}, images.labels));
  }

  std::string data() const { return " --data " + folder_ / "images" + " --labels " + folder_ / "labels"; }
  std::string small() const {
    return data() + " --channels 2 --cells 1 --batch 4 --threads 1 --crop-padding 1 --eigenvalue-products 3";
  }
  // A tenth of a second an epoch at least: a signal after the first comes long before the last.
  std::string long_search() const { return "search --method darts --alpha-rate 0.05 --epochs 12" + small(); }
  json resumed(const std::string& folder, const std::string& warning = "") const {
    const Output output = run_program("search --json --quiet --resume " + folder);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    if (warning.empty()) {  // but for what a few steps on a few images come to
      EXPECT_THAT(output.err, AnyOf(IsEmpty(), StartsWith("warning: alpha has moved by ")));
    } else {
      EXPECT_THAT(output.err, HasSubstr(warning));
    }
    return output.exit_code == 0 ? output.json() : json();
  }

  const TemporaryFolder folder_;
};

TEST_F(SearchTest, EverySpaceGivesOneJsonObject) {
  const std::pair<const char*, const char*> cases[] = {{"nasbench201", "idarts"},
                                                       {"nasbench1shot1-3", "darts-first-order"},
                                                       {"darts", "darts --alpha-steps 2"}};
  for (const auto& [space, method] : cases) {
    SCOPED_TRACE(space);
    const std::string out = folder_ / (std::string("a/") + space);
    const Output output = run_program("search --json --epochs 2 --seed 3 --space " + std::string(space) +
                                      " --method " + method + small() + " --out " + out);
    ASSERT_EQ(output.exit_code, 0) << output.err;
    EXPECT_THAT(output.err, HasSubstr("epoch 2/2: validation loss "));
    const json report = output.json();
    EXPECT_EQ(report.at("space"), space);
    EXPECT_EQ(report.at("stopped"), "all epochs done");
    EXPECT_EQ(report.at("seed"), 3);
    EXPECT_EQ(report.at("folder"), out);
    EXPECT_FALSE(report.contains("benchmark"));
    size_t entries = 0;
    for (const json& block : report.at("alpha_blocks")) {
      entries += block.at("rows").get<size_t>() * block.at("choices").get<size_t>();
    }
    EXPECT_EQ(report.at("alpha").size(), entries);
    EXPECT_GT(report.at("counts").at("outer_gradient"), 0);
    EXPECT_GT(report.at("parameters"), 0);
    ASSERT_EQ(report.at("history").size(), 2U);
    for (const char* column : {"valid_loss", "valid_accuracy", "eigenvalue", "rate"}) {
      EXPECT_TRUE(report["history"][1].at(column).is_number()) << column;
    }
    EXPECT_EQ(report["history"][1].at("epoch"), 2);
    EXPECT_EQ(report["history"][1].at("genotype"), report.at("genotype"));
    EXPECT_EQ(read_text(out + "/genotype.txt"), report.at("genotype").get<std::string>() + "\n");
    EXPECT_EQ(json::parse(read_text(out + "/summary.json")), report);
    EXPECT_EQ(json::parse(read_text(out + "/genotype.json")).at("space"), space);
  }
  const Output again = run_program("search" + small() + " --out " + folder_ / "a/darts");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr("--out " + folder_ / "a/darts"), HasSubstr("--resume")));
}

TEST_F(SearchTest, IsGuardedUnlessItIsToldNotTo) {
  auto report = [&, runs = 0](const std::string& more) mutable {
    const std::string out = folder_ / ("guarded-" + std::to_string(runs++));
    const Output output =
        run_program("search --json --quiet --epochs 4" + small() + " --out " + out + " " + more);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.json();
  };
  // 4 epochs of 8 steps at 0.015 here, as far as 4 of the 50 epochs of 390 at 3e-4 in the search that 25 is
  // for.
  const json usual = report(""), named = report("--guard beta-decay --guard-strength 2.1"),
             far = report("--alpha-rate 1"), none = report("--guard none"),
             nothing = report("--guard-strength 0"), smooth = report("--guard smoothing");
  EXPECT_EQ(usual.at("method"), "darts-first-order");
  EXPECT_EQ(usual.at("guard"), "beta-decay");
  EXPECT_EQ(usual.at("guard_strength"), 2.1);
  EXPECT_EQ(far.at("guard_strength"), 25);
  EXPECT_EQ(usual.at("alpha"), named.at("alpha"));
  for (int epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(usual.at("history")[epoch].at("guard"), 2.1 * epoch / 4);
    EXPECT_EQ(far.at("history")[epoch].at("guard"), 25.0 * epoch / 4);
    EXPECT_TRUE(none.at("history")[epoch].at("guard").is_null());
  }
  EXPECT_EQ(none.at("guard"), "none");
  EXPECT_NE(none.at("alpha"), usual.at("alpha"));
  EXPECT_EQ(none.at("alpha"), nothing.at("alpha"));
  EXPECT_EQ(smooth.at("guard_strength"), 0.3);
  EXPECT_EQ(config_of(folder_ / "guarded-0").at("effective").at("guard"), "beta-decay");
}

// The default strength was 50 for every search, without a warm-up.
TEST_F(SearchTest, ARunWithAnEarlierDefaultStrengthKeepsIt) {
  const std::string strong = long_search() + " --guard-strength 50 --warmup-epochs 0 --quiet --json --out ",
                    run = folder_ / "old";
  const Output whole = run_program(strong + (folder_ / "whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  Background program(strong + run, folder_ / "err");
  const int status = program.end_when([&] { return std::filesystem::exists(run + "/checkpoint"); }, SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 130) << "too late to stop it: " << read_text(folder_ / "err");
  json config = json::parse(read_text(run + "/config.json"));
  for (const char* name : {"guard_strength", "warmup_epochs"}) ASSERT_EQ(config["options"].erase(name), 1U);
  put(run + "/config.json", config.dump());
  const json gone_on = resumed(run);
  EXPECT_EQ(gone_on.at("guard_strength"), 50);
  EXPECT_EQ(gone_on.at("alpha"), whole.json().at("alpha"));
}

// Fewer weights, more alpha; --resume and a report know both.
TEST_F(SearchTest, PartialChannelsGoOnAndAreReported) {
  const std::string search =
      "search --method darts --alpha-rate 0.05 --epochs 12 --guard partial-channels --quiet --json" + data() +
      " --channels 4 --cells 1 --batch 4 --threads 1 --crop-padding 1 --eigenvalue-products 3 --out ";
  const std::string run = folder_ / "stopped";
  const Output whole = run_program(search + (folder_ / "whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(whole.json().at("guard_strength"), 4);
  EXPECT_EQ(whole.json().at("alpha").size(), 6 * 5 + 2 + 3U);
  EXPECT_EQ(whole.json().at("alpha_blocks")[2].at("name"), "edges-inputs-3");
  Background program(search + run, folder_ / "err");
  const int status = program.end_when([&] { return std::filesystem::exists(run + "/checkpoint"); }, SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 130) << "too late to stop it: " << read_text(folder_ / "err");
  const json gone_on = resumed(run);
  EXPECT_EQ(gone_on.at("alpha"), whole.json().at("alpha"));
  EXPECT_EQ(gone_on.at("genotype"), whole.json().at("genotype"));
  const Output page = run_program("report " + run + " --out " + folder_ / "page.html");
  ASSERT_EQ(page.exit_code, 0) << page.err;
  const std::string text = read_text(folder_ / "page.html");
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("Alpha cannot be shown")), Not(HasSubstr("No alpha has been recorded"))));
  if (std::system("command -v gnuplot >/dev/null") == 0) {  // it draws the guard's curve
    EXPECT_THAT(text, HasSubstr("K: one channel in so many goes through"));
  }
  const Output odd = run_program("search --guard partial-channels" + small());
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.err, HasSubstr("--channels 2: --guard partial-channels sends one channel in 4 through"));
}

// It began bare, whatever the default is now.
// Its defaults were others: no guard, and another method where none was named.
TEST_F(SearchTest, AnEarlierRunGoesOnAsItBegan) {
  const std::string bare = long_search() + " --guard none --quiet --json --out ", run = folder_ / "old";
  const Output whole = run_program(bare + (folder_ / "whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  Background program(bare + run, folder_ / "err");
  const int status = program.end_when([&] { return std::filesystem::exists(run + "/checkpoint"); }, SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 130) << "too late to stop it: " << read_text(folder_ / "err");
  json config = json::parse(read_text(run + "/config.json"));
  for (const char* name : {"guard", "method"}) config["options"].erase(name);
  for (const char* name : {"guard", "guard_strength"}) config["effective"].erase(name);
  put(run + "/config.json", config.dump());
  const json gone_on = resumed(run);
  EXPECT_EQ(gone_on.at("guard"), "none");
  EXPECT_EQ(gone_on.at("method"), "darts");
  EXPECT_EQ(gone_on.at("alpha"), whole.json().at("alpha"));
}

TEST_F(SearchTest, ConjugateGradientsCountByDefaultAndEndWhereTheHessianIsNotPositive) {
  const std::string search = "search --method cg --epochs 2 --alpha-steps 15 --quiet " + small() + " --out ";
  const Output good = run_program(search + (folder_ / "good") + " --json");
  ASSERT_EQ(good.exit_code, 0) << good.err;
  const json report = good.json();
  EXPECT_FALSE(report.at("linear_solves").contains("negative_curvature"));
  for (const json& epoch : report.at("history")) EXPECT_GT(epoch.at("mixed_over_direct"), 0);

  const Output bad = run_program(search + (folder_ / "bad") + " --curvature hessian");
  EXPECT_EQ(bad.exit_code, 3) << bad.out;
  EXPECT_THAT(bad.err, AllOf(HasSubstr("linear solves failed"), HasSubstr("negative_curvature"),
                             HasSubstr("take --curvature gauss-newton")));
  EXPECT_THAT(bad.out, HasSubstr("linear solves: "));
}

TEST_F(SearchTest, ATableGivesAccuraciesAndRegret) {
  const std::string table = table_of_201();
  if (table.empty()) GTEST_SKIP() << "no shared/data/nasbench201.csv";
  const std::string out = " --out " + folder_ / "out";
  const Output output = run_program("search --json --quiet --epochs 1 --benchmark " + table + small() + out);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, AnyOf(IsEmpty(), StartsWith("warning: alpha has moved by ")));
  const json report = output.json();
  for (const char* column : {"cifar10_valid", "cifar10_test", "cifar100_valid", "cifar100_test",
                             "imagenet16_valid", "imagenet16_test"}) {
    EXPECT_GT(report.at("benchmark").at(column), 0) << column;
    EXPECT_GE(report.at("regret").at(column), 0) << column;
    EXPECT_EQ(report["history"][0].at("benchmark").at(column), report["benchmark"][column]);
  }
  // Known before the first step that would be lost.
  const Output other =
      run_program("search --space darts --benchmark " + table + small() + " --out " + folder_ / "other");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("--benchmark " + table), HasSubstr("only cells of nasbench201")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
}

// However it ends, --resume goes on to the alpha of a search that nothing disturbed, bit for bit.
TEST_F(SearchTest, AKilledSearchGoesOnToTheSameAlpha) {
  const Output whole = run_program(long_search() + " --quiet --json --out " + folder_ / "whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const json expected = whole.json();
  const auto expect_the_same = [&](const json& report) {
    ASSERT_TRUE(report.is_object());
    EXPECT_EQ(report.at("alpha"), expected.at("alpha"));
    EXPECT_EQ(report.at("genotype"), expected.at("genotype"));
    EXPECT_EQ(report.at("counts"), expected.at("counts"));
    ASSERT_EQ(report.at("history").size(), expected.at("history").size());
    for (size_t i = 0; i < report["history"].size(); ++i) {
      EXPECT_EQ(report["history"][i].at("valid_loss"), expected["history"][i].at("valid_loss")) << i;
      EXPECT_EQ(report["history"][i].at("eigenvalue"), expected["history"][i].at("eigenvalue")) << i;
    }
  };
  {
    SCOPED_TRACE("SIGKILL after the second checkpoint, which is then damaged");
    const std::string run = folder_ / "killed", checkpoint = run + "/checkpoint";
    Background program(long_search() + " --quiet --out " + run, folder_ / "err");
    const int status =
        program.end_when([&] { return std::filesystem::exists(checkpoint + ".previous"); }, SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(status)) << "too late to kill it: " << read_text(folder_ / "err");
    EXPECT_FALSE(std::filesystem::exists(run + "/genotype.txt"));
    std::filesystem::copy(run, folder_ / "damaged");
    expect_the_same(resumed(run));
    std::string bytes = read_text(folder_ / "damaged/checkpoint");
    ASSERT_FALSE(bytes.empty());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    put(folder_ / "damaged/checkpoint", bytes);
    expect_the_same(resumed(folder_ / "damaged", "warning: "));
  }
  {
    SCOPED_TRACE("SIGTERM in the middle");
    const std::string run = folder_ / "stopped";
    Background program(long_search() + " --out " + run, folder_ / "err");
    const int status =
        program.end_when([&] { return std::filesystem::exists(run + "/checkpoint"); }, SIGTERM);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 130) << "too late to stop it: " << read_text(folder_ / "err");
    EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("bilevel search --resume " + run));
    EXPECT_FALSE(std::filesystem::exists(run + "/genotype.txt"));
    expect_the_same(resumed(run));
  }
}

TEST_F(SearchTest, BadInputIsNamedAndLeavesNothing) {
  put(folder_ / "photos/cat/a.png", from_hex(png_of_8));
  put(folder_ / "photos/dog/b.png", from_hex(png_of_6));
  put(folder_ / "overlap.json", R"({"train": [0, 1, 2, 3, 4], "valid": [4, 5, 6, 7]})");
  put(folder_ / "table.csv", "arch,accuracy\n|none~0|,1\n");
  struct Case {
    std::string arguments;
    int exit_code;
    std::vector<std::string> expected;
  };
  const Case cases[] = {
      {small() + " --space nasbench301", 2, {"--space", "nasbench301", "choose from nasbench201"}},
      {small() + " --operations skip_connect,conv_9x9", 2, {"--operations", "conv_9x9", "nor_conv_3x3"}},
      {small() + " --method evolution", 2, {"--method evolution: choose from idarts"}},
      // Before the data are read, which are not there.
      {" --data nowhere --guard gamma-decay", 2, {"--guard gamma-decay: choose from beta-decay"}},
      {" --data nowhere --stop soon", 2, {"--stop soon: choose from eigenvalue, skips, none"}},
      {data() + " --batch 33", 2, {"--batch 33", "only 32 training images", "smaller batch"}},
      {small() + " --space nasbench1shot1-1 --stop skips", 2, {"--stop skips", "use eigenvalue"}},
      {" --data " + folder_ / "images", 2, {folder_ / "images", "--labels"}},
      {" --data " + folder_ / "photos", 2, {"takes 0 of 2 images", "bring more images"}},
      {small() + " --split " + folder_ / "overlap.json",
       1,
       {"overlap.json", "4 in \"train\" and in \"valid\""}},
      {small() + " --benchmark " + folder_ / "table.csv",
       1,
       {"table.csv: line 1", "the columns are arch,cifar10_valid"}},
      {" --resume " + folder_ / "nowhere",
       1,
       {"--resume " + folder_ / "nowhere", "give the folder of a run"}},
      {small() + " --epochs 3 --inner-rate 1e30 --inner-clip 0",
       3,
       {"epoch 1, step 1 of 8", "--inner-rate", "--inner-clip"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.arguments);
    const Output output =
        run_program("search --quiet" + bad.arguments +
                    (bad.arguments.starts_with(" --resume") ? "" : " --out " + folder_ / "b/out"));
    EXPECT_EQ(output.exit_code, bad.exit_code) << output.err;
    EXPECT_THAT(output.out, IsEmpty());
    for (const std::string& expected : bad.expected) EXPECT_THAT(output.err, HasSubstr(expected));
    // A run that began says how it failed; what is wrong before that leaves nothing.
    if (bad.exit_code == 3) {
      EXPECT_EQ(json::parse(read_text(folder_ / "b/out/run.json")).at("status"), "failed");
    } else {
      EXPECT_FALSE(std::filesystem::exists(folder_ / "b"));
    }
  }
}

// At the weights that it left, not at the first ones.
TEST_F(SearchTest, ACheckpointCanBeDiagnosed) {
  const std::string run = folder_ / "run";
  ASSERT_EQ(
      run_program("search --quiet --method darts --inner-rate 0.2 --epochs 2" + small() + " --out " + run)
          .exit_code,
      0);
  const Output output = run_program("diagnose --json --at " + run);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json there = output.json();
  EXPECT_THAT(there.at("sentence").get<std::string>(), HasSubstr(there.at("method").get<std::string>()));
  const Output start = run_program("search --json --method auto --inner-rate 0.2 --epochs 1" + small() +
                                   " --out " + folder_ / "auto");
  ASSERT_EQ(start.exit_code, 0) << start.err;
  const double first = start.json().at("auto").at("largest_eigenvalue");
  EXPECT_GT(std::abs(there.at("largest_eigenvalue").get<double>() - first), 1e-6 * first);
}

}  // namespace
}  // namespace bilevel::test
