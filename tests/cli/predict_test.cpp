// From a user's own files to predictions on new ones: every kind of table and folders of JPEG files, by the
// commands that a user types.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "bilevel/data/csv.h"
#include "bilevel/data/jpeg.h"
#include "bilevel/data/npy.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kinds{"oak", "red maple", "birch; white"};

// Three kinds of leaves that length, width and colour tell apart, as a spreadsheet in German writes them.
std::string leaves(int first, int count, bool with_kind = true, bool with_extra = false) {
  std::string text = with_kind ? "\xef\xbb\xbfleaf_id;Laenge;Breite;Farbe;Art\r\n" : "Farbe;Breite;Laenge";
  if (!with_kind) text += with_extra ? ";Alter\r\n" : "\r\n";
  for (int i = first; i < first + count; ++i) {
    const int kind = i % 3;
    const std::string colour = kind == 0 ? "green" : i % 2 == 0 ? "red" : "yellow";
    const std::string length = fmt::format("{},{}", 2 + 3 * kind, i % 7);
    const std::string width = i % 11 == 5 ? "NA" : fmt::format("{},{}", 9 - 2 * kind, i % 5);
    text += with_kind ? fmt::format("{};{};{};{};\"{}\"\r\n", 1000 + i, length, width, colour,
                                    kinds[static_cast<size_t>(kind)])
                      : fmt::format("{};{};{}{}\r\n", colour, width, length, with_extra ? ";7" : "");
  }
  return text;
}

json run_on_one_thread(const std::string& arguments) {
  const Output output = run_program(arguments + " --json --threads 1");
  EXPECT_EQ(output.exit_code, 0) << arguments << '\n' << output.err;
  return output.exit_code == 0 ? output.json() : json();
}

class Predict : public ::testing::Test {
 protected:
  void SetUp() override {
    put(folder_ / "train.csv", leaves(0, 60));
    put(folder_ / "valid.csv", leaves(60, 30));
    put(folder_ / "new.csv", leaves(200, 9, false));
  }
  // The classes that new.csv should get, as its CSV has them.
  void expect_leaves(const std::string& run) const {
    const json predicted = run_on_one_thread("predict --quiet --run " + run + " --data " +
                                             folder_ / "new.csv" + " --output " + folder_ / "out.csv");
    ASSERT_TRUE(predicted.is_object());
    EXPECT_EQ(predicted.at("classes"), json::array({"birch; white", "oak", "red maple"}));
    ASSERT_EQ(predicted.at("predictions").size(), 9U);
    for (int i = 0; i < 9; ++i) {
      const json& one = predicted.at("predictions")[static_cast<size_t>(i)];
      EXPECT_EQ(one.at("row"), i);
      EXPECT_EQ(one.at("class"), kinds[static_cast<size_t>((200 + i) % 3)]) << i;
      double sum = 0;
      for (const json& p : one.at("probabilities")) sum += p.get<double>();
      EXPECT_NEAR(sum, 1, 1e-9);
    }
    EXPECT_THAT(read_text(folder_ / "out.csv"),
                AllOf(HasSubstr("row,class,confidence,\"birch; white\",oak,red maple\n0,\"birch; white\",0."),
                      HasSubstr("\n1,oak,0.")));
  }
  std::string files() const {
    return " --train " + folder_ / "train.csv" + " --valid " + folder_ / "valid.csv" +
           " --missing mean --quiet";
  }
  const TemporaryFolder folder_;
};

TEST_F(Predict, TuneSaysWhatItRecognisedAndItsModelTakesNewRows) {
  const Output output = run_program("tune --train " + folder_ / "train.csv" +
                                    " --missing mean --threads 1 --out " + folder_ / "tuned");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, AllOf(HasSubstr("train.csv: fields are separated by semicolons"),
                                HasSubstr("train.csv: decimals are written with commas"),
                                HasSubstr("column 0 ('leaf_id') holds a different value in every row"),
                                HasSubstr("train.csv: 5 missing values became the means of their columns")));
  expect_leaves(folder_ / "tuned");
  const json model = json::parse(read_text(folder_ / "tuned/model.json"));
  EXPECT_EQ(model.at("schema").at("columns")[2].at("categories"), json::array({"green", "red", "yellow"}));
  EXPECT_EQ(model.at("schema").at("dropped"), json::array({"leaf_id"}));
}

TEST_F(Predict, RowsOfAnUnknownClassDoNotCountAndAreNamed) {
  run_on_one_thread("tune" + files() + " --out " + folder_ / "tuned");
  std::string strange = leaves(0, 60);
  strange.replace(strange.find("oak"), 3, "elm");
  put(folder_ / "strange.csv", strange);
  const std::string predict =
      "predict --run " + folder_ / "tuned" + " --missing mean --data " + folder_ / "strange.csv";
  const json predicted = run_on_one_thread(predict);
  EXPECT_EQ(predicted.at("unknown_labels"), 1);
  EXPECT_GT(predicted.at("accuracy").get<double>(), 90);
  EXPECT_THAT(run_program(predict).out, HasSubstr("1 of 60 rows have a label that the model does not know"));
}

TEST_F(Predict, TheExamplesAreNotReplacedByTheirPredictions) {
  run_on_one_thread("tune" + files() + " --out " + folder_ / "tuned");
  const std::string data = folder_ / "train.csv", before = read_text(data);
  const Output output = run_program("predict --run " + folder_ / "tuned" + " --missing mean --data " + data +
                                    " --output " + folder_ / "./train.csv");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.err, HasSubstr("these are the examples themselves"));
  EXPECT_EQ(read_text(data), before);
}

TEST_F(Predict, CleanGivesNamesBackAndWritesItsModel) {
  for (const std::string by : {"noise-model", "weights --iterations 20"}) {
    std::string noisy = leaves(0, 60);
    // Row 4 is a red maple by its numbers.
    noisy.replace(noisy.find("1004;"), std::string("1004;5,4;7,4;red;\"red maple\"").size(),
                  "1004;5,4;7,4;red;\"oak\"");
    put(folder_ / "train.csv", noisy);
    const json cleaned =
        run_on_one_thread("clean --by " + by + files() + " --out " + folder_ / by.substr(0, 5));
    ASSERT_TRUE(cleaned.is_object()) << by;
    EXPECT_EQ(cleaned.at("class_names"), json::array({"birch; white", "oak", "red maple"}));
    EXPECT_THAT(read_text(folder_ / by.substr(0, 5) + "/weights.csv"), HasSubstr("\n4,oak,"));
    expect_leaves(folder_ / by.substr(0, 5));
    if (by != "noise-model") continue;
    ASSERT_FALSE(cleaned.at("most_suspect").empty()) << by;
    EXPECT_EQ(cleaned.at("most_suspect")[0].at("index"), 4);
    EXPECT_EQ(cleaned.at("most_suspect")[0].at("given_label"), "oak");
    EXPECT_EQ(cleaned.at("most_suspect")[0].at("suggested_label"), "red maple");
    EXPECT_THAT(read_text(folder_ / by.substr(0, 5) + "/suspects.csv"), HasSubstr("\n4,oak,"));
    const Output report =
        run_program("report " + folder_ / by.substr(0, 5) + " --out " + folder_ / "page.html");
    EXPECT_EQ(report.exit_code, 0) << report.err;
    EXPECT_THAT(read_text(folder_ / "page.html"), HasSubstr("red maple"));
  }
}

TEST_F(Predict, RowsThatWereDroppedKeepTheirNumbers) {
  const json cleaned = run_on_one_thread("clean --missing drop --quiet --train " + folder_ / "train.csv" +
                                         " --out " + folder_ / "dropped");
  EXPECT_EQ(cleaned.at("train_examples"), 55);
  const CsvTable weights = read_csv(folder_ / "dropped/weights.csv",
                                    {.drop = {"given_label", "suggested_label"}, .keep = {"index"}});
  EXPECT_EQ(weights.values[5][0].item<int64_t>(), 6);  // row 5 has no width
  const json predicted =
      run_on_one_thread("predict --quiet --run " + folder_ / "dropped" + " --data " + folder_ / "train.csv");
  EXPECT_EQ(predicted.at("predictions")[5].at("row"), 6);
  EXPECT_GT(predicted.at("accuracy"), 95);
}

TEST_F(Predict, InteractTakesNamesOfTasks) {
  std::string text = "shop,price,size,sold\n";
  for (int i = 0; i < 80; ++i) {
    text += fmt::format("{},{},{},{}\n", i % 2 == 0 ? "North End" : "Harbour", i % 9 - 4, i % 5 - 2,
                        i % 9 - 4 > 0 ? "yes" : "no");
  }
  put(folder_ / "shops.csv", text);
  for (const std::string way : {"", " --iterations 20 --bias"}) {
    const std::string run = folder_ / (way.empty() ? "shops" : "shops by an algorithm");
    const json shops = run_on_one_thread("interact --quiet --task-column shop --label-column sold" + way +
                                         " --train " + folder_ / "shops.csv" + " --out '" + run + "'");
    EXPECT_EQ(shops.at("by"), way.empty() ? "held-out" : "algorithm");
    EXPECT_EQ(shops.at("task_names"), json::array({"Harbour", "North End"}));
    EXPECT_EQ(shops.at("class_names"), json::array({"no", "yes"}));
    put(folder_ / "tomorrow.csv", "size,shop,price\n0,Harbour,4\n1,North End,-4\n");
    const json predicted =
        run_on_one_thread("predict --quiet --run '" + run + "' --data " + folder_ / "tomorrow.csv");
    EXPECT_EQ(predicted.at("predictions")[0].at("task"), "Harbour");
    EXPECT_EQ(predicted.at("predictions")[0].at("class"), "yes");
    EXPECT_EQ(predicted.at("predictions")[1].at("class"), "no");
  }
  put(folder_ / "tomorrow.csv", "size,shop,price\n0,Market,4\n");
  EXPECT_THAT(run_program("predict --run " + folder_ / "shops" + " --data " + folder_ / "tomorrow.csv").err,
              HasSubstr("tomorrow.csv: line 2: expected a group of " + folder_ / "shops.csv" +
                        " in column 1 ('shop') (Harbour, North End), found 'Market'"));
}

TEST_F(Predict, NamesTheColumnThatDoesNotFit) {
  ASSERT_TRUE(run_on_one_thread("tune --train " + folder_ / "train.csv" + " --missing mean --quiet --out " +
                                folder_ / "tuned")
                  .is_object());
  const auto refusal = [&](const std::string& text) {
    put(folder_ / "other.csv", text);
    const Output output =
        run_program("predict --run " + folder_ / "tuned" + " --data " + folder_ / "other.csv");
    EXPECT_EQ(output.exit_code, 1);
    return output.err;
  };
  EXPECT_THAT(refusal("Laenge;Breite\n1;2\n"), HasSubstr("found no column 'Farbe'"));
  EXPECT_THAT(refusal(leaves(0, 3, false, true)), HasSubstr("a column 'Alter' that it does not have"));
  EXPECT_THAT(refusal("Laenge;Breite;Farbe\n1;wide;red\n"),
              HasSubstr("line 2: expected a finite number in column 1 ('Breite')"));
  const Output nothing = run_program("predict --run " + folder_ / "none" + " --data " + folder_ / "new.csv");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--run " + folder_ / "none" + ": there is no model.json in it"));
  put(folder_ / "posts/regularisers.csv", "feature,x,regulariser,weight_norm\n");
  EXPECT_THAT(run_program("predict --run " + folder_ / "posts" + " --data " + folder_ / "new.csv").err,
              HasSubstr("it tuned the posts of 20 Newsgroups, whose words are not kept"));
  EXPECT_THAT(
      run_program("predict --run " + folder_ / "tuned" + " --support a --data " + folder_ / "new.csv").err,
      HasSubstr("--support a: the model of tune already has its classes"));
}

TEST_F(Predict, ArraysOfBytesStayBytes) {
  const Tensor pixels = at::arange(40 * 6).reshape({40, 6}).mul(7).remainder(256);
  write_npy(folder_ / "x.npy", pixels.to(at::kByte));
  write_npy(folder_ / "floats.npy", pixels.to(at::kFloat));
  write_npy(folder_ / "y.npy", at::arange(40).remainder(2));
  ASSERT_TRUE(run_on_one_thread("tune --quiet --train " + folder_ / "x.npy" + " --train-labels " +
                                folder_ / "y.npy" + " --out " + folder_ / "run")
                  .is_object());
  EXPECT_EQ(run_on_one_thread("predict --quiet --run " + folder_ / "run" + " --data " + folder_ / "x.npy")
                .at("predictions")
                .size(),
            40U);
  EXPECT_THAT(run_program("predict --run " + folder_ / "run" + " --data " + folder_ / "floats.npy").err,
              HasSubstr("floats.npy: expected bytes (uint8) as in " + folder_ / "x.npy"));
}

// A folder of photographs: search, train, predict, one CSV out.
TEST_F(Predict, JpegFoldersFromSearchToPredictions) {
  if (!has_jpeg()) GTEST_SKIP() << "SKIPPED: built without libjpeg";
  // Bright above, bright on the left, or bright in the middle, in three sizes.
  const auto photo = [](int kind, int i) {
    const int64_t side = 8 + 4 * (i % 5 == 0) + 4 * (i % 7 == 0);
    Tensor picture = at::full({3, side, side}, 40 + 3 * (i % 9), at::kByte);
    const Tensor part = kind == 0   ? picture.narrow(1, 0, side / 2)
                        : kind == 1 ? picture.narrow(2, 0, side / 2)
                                    : picture.narrow(1, side / 4, side / 2).narrow(2, side / 4, side / 2);
    part.fill_(200 + i % 20);
    return write_jpeg(picture, 95);
  };
  const std::vector<std::string> classes{"sky", "left wall",
                                         "r\xc3\xb6"
                                         "d"};
  for (int kind = 0; kind < 3; ++kind) {
    for (int i = 0; i < 40; ++i) {
      put(folder_ / fmt::format("photos/{}/{:02}.jpg", classes[static_cast<size_t>(kind)], i),
          photo(kind, i));
    }
    put(folder_ / fmt::format("new/{}.JPEG", kind), photo(kind, 101));
  }
  const std::string images = " --data " + folder_ / "photos" + " --threads 1 --quiet";
  const Output found = run_program("search --json --epochs 1 --batch 16 --channels 4 --cells 1 --out " +
                                   folder_ / "found" + images);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const Output trained = run_program(
      "train --json --genotype " + folder_ / "found/genotype.json" +
      " --channels 8 --cells 1 --epochs 12 --batch 16 --rate 0.1 --crop-padding 0 --no-flip --out " +
      folder_ / "trained" + images);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const json predicted = run_on_one_thread("predict --quiet --run " + folder_ / "trained" + " --data " +
                                           folder_ / "new" + " --output " + folder_ / "out.csv");
  ASSERT_EQ(predicted.at("predictions").size(), 3U);
  for (size_t kind = 0; kind < 3; ++kind) {
    EXPECT_EQ(predicted.at("predictions")[kind].at("class"), classes[kind]);
    EXPECT_EQ(predicted.at("predictions")[kind].at("file"), folder_ / fmt::format("new/{}.JPEG", kind));
  }
  EXPECT_THAT(read_text(folder_ / "out.csv"), AllOf(HasSubstr("file,class,confidence,left wall,r\xc3\xb6"
                                                              "d,sky\n"),
                                                    HasSubstr("new/0.JPEG,sky,")));
}

}  // namespace
}  // namespace bilevel::test
