// What the page of each kind of job shows beside what every page has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "bilevel/nas/synthetic_images.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class JobPages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "SKIPPED: gnuplot is not installed";
    }
    nas::SyntheticImages drawn{.samples = 40, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder_ / "images", idx({40, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder_ / "labels", idx({40}, images.labels));
  }
  std::string search(const std::string& name, const std::string& options) const {
    const Output output = run_program(
        "search --quiet --threads 1 --channels 2 --batch 4 --crop-padding 1 --eigenvalue-products 0 "
        "--data " +
        folder_ / "images" + " --labels " + folder_ / "labels" + " --out " + folder_ / name + " " + options);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return folder_ / name;
  }
  std::string page_of(const std::string& runs) const {
    const Output output = run_program("report " + runs + " --out " + folder_ / "page.html");
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return read_text(folder_ / "page.html");
  }

  const TemporaryFolder folder_;
};

TEST_F(JobPages, TuneShowsItsRegularisersByName) {
  std::string table = "useful,idle,\"a <b>\",class\n";
  for (int i = 0; i < 60; ++i) {
    table += std::to_string(i % 2) + "," + std::to_string(i * 7 % 5) + "," + std::to_string(i * 3 % 4) + "," +
             std::to_string(i % 2) + "\n";
  }
  put(folder_ / "table.csv", table);
  const Output output = run_program("tune --quiet --threads 1 --iterations 20 --label-column class --train " +
                                    folder_ / "table.csv" + " --out " + folder_ / "tune");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const std::string page = page_of(folder_ / "tune");
  EXPECT_THAT(page,
              AllOf(HasSubstr("id=\"learned\""), HasSubstr("Most regularised"), HasSubstr(">useful</th>"),
                    HasSubstr(">a &lt;b&gt;</th>"), HasSubstr(">Regularisers")));
  EXPECT_THAT(page, Not(HasSubstr("column 0")));
}

TEST_F(JobPages, AFolderNamedWithASlashKeepsItsName) {
  for (int i = 0; i < 20; ++i) {
    std::string pixels;
    for (int k = 0; k < 64; ++k) pixels += static_cast<char>((k * (i % 2 + 2) + 9 * i) % 200);
    put(folder_ / ("digits/" + std::to_string(i % 2) + "/" + std::to_string(i) + ".png"),
        grey_png(8, 8, pixels));
  }
  const std::string small = " --quiet --threads 1 --channels 2 --cells 1 --batch 4 --epochs 1 --data " +
                            folder_ / "digits/" + " --out ";
  ASSERT_EQ(run_program("search --method darts-first-order --eigenvalue-products 0" + small + folder_ / "s")
                .exit_code,
            0);
  EXPECT_THAT(page_of(folder_ / "s"), HasSubstr("darts-first-order searches nasbench201 for digits<"));
  ASSERT_EQ(run_program("train --arch "
                        "'|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|'" +
                        small + folder_ / "t")
                .exit_code,
            0);
  EXPECT_THAT(page_of(folder_ / "t"), HasSubstr("Training a cell on digits<"));
}

TEST_F(JobPages, SolveShowsHowItsHyperparametersMoved) {
  ASSERT_EQ(run_program("solve --quiet --threads 1 --problem hyper-cleaning --iterations 8 --out " +
                        folder_ / "solve")
                .exit_code,
            0);
  EXPECT_THAT(page_of(folder_ / "solve"),
              AllOf(HasSubstr("Learned hyperparameters"), HasSubstr("95th percentile")));
}

// Cells that are trained one by one have neither alpha nor a supernet.
TEST_F(JobPages, ARandomSearchIsAboutCells) {
  const std::string page = page_of(search("random", "--method random --samples 3 --cells 1 --epochs 1"));
  EXPECT_THAT(page, AllOf(HasSubstr("After 3 cells it chose"), HasSubstr("validation accuracy</dt>"),
                          Not(HasSubstr("id=\"alpha\"")), Not(HasSubstr("supernet"))));
}

// parents-3 has as many candidates as there are operations.
TEST_F(JobPages, RowsThatChooseParentsNameParents) {
  const std::string page = page_of(search("parents", "--space nasbench1shot1-3 --cells 3 --epochs 1"));
  const size_t block = page.find("<h3>parents-3");
  ASSERT_NE(block, std::string::npos);
  const size_t caption = page.find("<figcaption>", block);
  EXPECT_EQ(page.substr(caption + 12, 27), "Strongest at the end: from ");
}

TEST_F(JobPages, SearchesAreComparedByTheirOperations) {
  const std::string one = search("one", "--cells 1 --epochs 3 --alpha-rate 0.3"),
                    two = search("two", "--cells 1 --epochs 3 --alpha-rate 0.3 --seed 1");
  EXPECT_THAT(page_of(one + " " + two), HasSubstr("Operations of the cell, shares: "));
}

}  // namespace
}  // namespace bilevel::test
