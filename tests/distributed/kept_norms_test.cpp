// The norms of a search that ranks began: kept where it goes on, and diagnosed by one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/search.h"
#include "bilevel/nas/synthetic_images.h"
#include "tests/cli/image_files.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class KeptNorms : public ::testing::Test {
 protected:
  void SetUp() override {
    BILEVEL_NEEDS_GLOO();
    nas::SyntheticImages drawn{.samples = 40, .channels = 1, .noise = 0.3, .seed = 1};
    drawn.classes = 2;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder / "images", idx({40, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder / "labels", idx({40}, images.labels));
  }
  SearchJobOptions options() const {
    SearchJobOptions o;
    o.given.set(o.data.data, folder / "images");
    o.given.set(o.data.labels, folder / "labels");
    o.given.set(o.network.channels, 2);
    o.given.set(o.network.cells, 1);
    o.given.set(o.augment.crop_padding, 1);
    o.given.set(o.search.method, std::string("darts-first-order"));
    o.given.set(o.search.epochs, 3);
    o.given.set(o.search.batch, 4);
    o.given.set(o.compute.threads, 1);
    return o;
  }
  // Two ranks that stop after a step.
  void begin(const std::string& batch_norm) const {
    run_ranks(2, [&](const auto& group) {
      SearchJobOptions o = options();
      o.given.set(o.batch_norm, batch_norm);
      RunContext context({.keep = true, .out = folder / "run", .group = group},
                         {.interrupted = [] { return true; }});
      EXPECT_EQ(run_search(o, context).end.status, RunStatus::interrupted);
    });
  }
  TemporaryFolder folder;
};

TEST_F(KeptNorms, one_process_goes_on_with_what_ranks_began_and_says_what_changes) {
  begin("rank");
  std::vector<std::string> warnings;
  RunContext context({.keep = true, .resume = folder / "run"},
                     {.warning = [&](const std::string& text) { warnings.push_back(text); }});
  SearchJobOptions o = options();
  o.given.set(o.batch_norm, std::string("rank"));
  const SearchJobResult result = run_search(o, context);
  EXPECT_EQ(result.end.status, RunStatus::finished);
  EXPECT_THAT(warnings,
              Contains(HasSubstr("batch norm sees a different part of every batch on 1 rank than on 2")));
}

// What the rule chose then holds, whatever it would choose now.
TEST_F(KeptNorms, a_rule_s_choice_is_kept) {
  for (const std::string batch_norm : {"rank", "global"}) {
    SearchJobOptions o = options();
    StoredRun run;
    run.effective = {{"batch_norm", {batch_norm}}};
    keep_batch_norm(OptionsView(o), run);
    EXPECT_EQ(o.batch_norm, batch_norm);
    SearchJobOptions chosen = options();
    chosen.given.set(chosen.batch_norm, std::string("global"));
    keep_batch_norm(OptionsView(chosen), run);
    EXPECT_EQ(chosen.batch_norm, "global") << "as it was given";
  }
  begin("rank");
  SearchJobOptions o = options();  // as a run whose option was left out
  std::vector<std::string> warnings;
  RunContext context({.keep = true, .resume = folder / "run"},
                     {.warning = [&](const std::string& text) { warnings.push_back(text); }});
  run_search(o, context);
  EXPECT_THAT(warnings, Contains(HasSubstr("batch norm sees a different part of every batch")));
}

TEST_F(KeptNorms, a_run_with_norms_of_ranks_can_be_diagnosed) {
  begin("rank");
  std::vector<std::string> warnings;
  RunContext context({}, {.warning = [&](const std::string& text) { warnings.push_back(text); }});
  const nas::SearchDiagnosis found = diagnose_search_run(read_stored_run(folder / "run"), 0.1, context);
  EXPECT_FALSE(found.sentence.empty());
  EXPECT_THAT(warnings, Contains(HasSubstr("batch norm saw each rank's own images there")));
}

}  // namespace
}  // namespace bilevel::test
