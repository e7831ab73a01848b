// A learned model in a file: all of it comes back, and a file that is wrong is refused.
#include "bilevel/meta/model_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "bilevel/run/checkpoint.h"
#include "tests/data/files.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::meta {
namespace {

Tensor start_of(const LearnedModel& m) {
  return Learner(m.learner, make_network(m.network, m.input, m.outputs), test::floats()).initial_outer(3);
}

TEST(ModelFile, comes_back_bit_for_bit) {
  LearnedModel model;
  model.data = "blobs";
  model.learner = default_learner_options("anil");
  model.network = {.name = "mlp", .filters = 32};
  model.input = {8};
  model.outputs = 5;
  model.x = start_of(model);
  const test::TemporaryFolder folder;
  const std::string path = folder.at("model");
  save_model(path, model);
  const LearnedModel back = load_model(path);
  EXPECT_TRUE(back.x.equal(model.x));
  EXPECT_EQ(back.learner.inner_steps, model.learner.inner_steps);
  EXPECT_FALSE(back.scale);
  EXPECT_THROW(back.make_learner(4, test::floats()), std::invalid_argument);
  model.learner = default_learner_options("aid");
  model.x = start_of(model);
  save_model(path, model);
  EXPECT_EQ(load_model(path).make_learner(4, test::floats()).task_parameters(), 4 * 33);
  EXPECT_THROW(load_model(path + "-none"), std::runtime_error);
  model.network = {.name = "omniglot", .filters = 2};
  model.input = {3, 16, 16};
  model.scale = PixelScale{{0.5, 1, 2}, {2, 3, -255}};
  model.x = start_of(model);
  save_model(path, model);
  EXPECT_EQ(load_model(path).scale->mean, model.scale->mean);
  EXPECT_EQ(load_model(path).scale->deviation, model.scale->deviation);
}

// What a file says of its network decides what is taken out of it.
TEST(ModelFile, one_that_contradicts_itself_is_refused) {
  LearnedModel model;
  model.data = "images";
  model.learner = default_learner_options("anil");
  model.network = {.name = "omniglot", .filters = 2};
  model.input = {3, 16, 16};
  model.outputs = 5;
  model.scale = PixelScale{{0.5, 1, 2}, {2, 3, 4}};
  model.x = start_of(model);
  const test::TemporaryFolder folder;
  const std::string path = folder.at("model");
  const auto refusal = [&](const auto& change) {
    save_model(path, model);
    Checkpoint file = load_checkpoint(path);
    change(file);
    save_checkpoint(path, file);
    return test::message<std::runtime_error>([&] { (void)load_model(path); });
  };
  using ::testing::AllOf, ::testing::HasSubstr;
  const auto of_file = [&](const char* text) { return AllOf(HasSubstr(path), HasSubstr(text)); };
  EXPECT_THAT(refusal([](Checkpoint& f) { f.metadata["model"]["network"]["filters"] = 3; }),
              of_file("its embedding has 170 numbers"));
  EXPECT_THAT(refusal([](Checkpoint& f) { f.metadata["model"]["network"]["filters"] = 1e300; }),
              of_file("1e+300"));
  EXPECT_THAT(refusal([](Checkpoint& f) { f.metadata["model"]["outputs"] = int64_t{1} << 62; }),
              of_file("64 bits"));
  EXPECT_THAT(refusal([](Checkpoint& f) {
                f.metadata["model"]["input"] = {3, int64_t{1} << 31, int64_t{1} << 31};
              }),
              of_file("64 bits"));
  EXPECT_THAT(refusal([](Checkpoint& f) { f.metadata["model"]["scale"]["mean"] = {1.5}; }),
              of_file("mean has 1 numbers for 3 channels"));
  EXPECT_THAT(refusal([](Checkpoint& f) {
                f.metadata["model"]["scale"]["deviation"] = {1, 0, 1};
              }),
              of_file("deviation"));
  EXPECT_THAT(refusal([](Checkpoint& f) { f.tensors.erase("start"); }), of_file("has no start"));
  EXPECT_THAT(refusal([](Checkpoint& f) { f.tensors["start"] = f.tensors["start"].to(at::kLong); }),
              of_file("of type Long"));
}

}  // namespace
}  // namespace bilevel::meta
