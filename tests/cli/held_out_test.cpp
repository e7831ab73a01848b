// Images without a test set: what `search` keeps away from and what `train` tests on are the same, whatever
// the seeds and the sizes are.

#include <gmock/gmock.h>

#include <string>

#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;

json summary(const std::string& arguments) {
  const Output output = run_program(arguments + " --json --quiet");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return output.exit_code == 0 ? output.json() : json();
}

TEST(HeldOut, IsTheSameForEverySeedAndCommand) {
  const TemporaryFolder folder;
  const Tensor pixels = at::arange(120 * 64).reshape({120, 64}).remainder(211);
  put(folder / "images", idx({120, 8, 8}, pixels));
  put(folder / "labels", idx({120}, at::arange(120).remainder(4)));
  const std::string data = " --data " + folder / "images" + " --labels " + folder / "labels";
  const json shown = summary("data show" + data);
  EXPECT_EQ(shown.at("held_out").at("images"), 24);
  EXPECT_EQ(shown.at("test"), 24);
  const std::string small = data + " --epochs 1 --channels 2 --cells 1 --batch 16 --threads 1 ";
  const std::string cell =
      " --arch '|skip_connect~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|skip_connect~2|'";
  for (const std::string seed : {"0", "1", "12345"}) {
    EXPECT_EQ(summary("search --method darts-first-order --eigenvalue-products 0 --seed " + seed + small)
                  .at("held_out"),
              shown.at("held_out"))
        << seed;
    const json trained = summary("train --image-size 6 --seed " + seed + small + cell);
    EXPECT_EQ(trained.at("held_out"), shown.at("held_out")) << seed;
    EXPECT_EQ(trained.at("test_images"), 24);
  }
  const std::string given = " --test-images " + folder / "images" + " --test-labels " + folder / "labels";
  EXPECT_TRUE(summary("train" + small + cell + given).at("held_out").is_null());
}

}  // namespace
}  // namespace bilevel::test
