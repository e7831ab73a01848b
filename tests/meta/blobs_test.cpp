#include "bilevel/meta/blobs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/messages.h"
#include "tests/meta/same_tasks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using meta::Blobs;
using meta::BlobsOptions;
using meta::Part;
using meta::TaskShape;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Blobs, are_a_pure_function_of_seed_part_and_number) {
  expect_replayable([](uint64_t seed) {
    return std::make_unique<Blobs>(TaskShape{5, 2, 3}, BlobsOptions{}, seed, floats());
  });
}

TEST(Blobs, have_the_asked_shapes_and_labels) {
  const TaskShape shape{4, 2, 3};
  expect_shapes(Blobs(shape, {}, 0, doubles()), shape, doubles());
  expect_shapes(Blobs(shape, {}, 0, floats()), shape, floats());
}

// Without noise an example is its class: a set of rows counts classes.
TEST(Blobs, parts_have_no_class_in_common) {
  BlobsOptions options;
  options.train_classes = 9, options.valid_classes = 6, options.test_classes = 7;
  options.noise = options.disturbance = 0;
  const Blobs source({5, 2, 3}, options, 3, doubles());
  std::set<std::vector<double>> all;
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    const meta::TaskBatch batch = source.tasks(part, 0, 40);
    std::set<std::vector<double>> seen;
    for (int64_t task = 0; task < 40; ++task) {
      std::vector<std::vector<double>> of_label(5);
      const auto look = [&](const Tensor& inputs, const Tensor& targets) {
        for (int64_t i = 0; i < inputs.size(0); ++i) {
          const Tensor row = inputs[i].contiguous();
          const std::vector<double> values(row.data_ptr<double>(), row.data_ptr<double>() + row.numel());
          std::vector<double>& known = of_label[static_cast<size_t>(targets[i].item<int64_t>())];
          if (known.empty()) known = values;
          for (size_t k = 0; k < values.size(); ++k) EXPECT_NEAR(known[k], values[k], 1e-12);
        }
      };
      look(batch.train_inputs[task], batch.train_targets[task]);
      look(batch.valid_inputs[task], batch.valid_targets[task]);
      std::set<std::vector<double>> in_task;
      for (auto& values : of_label) {
        for (double& value : values) value = std::round(value * 1e9);
        in_task.insert(values);
      }
      EXPECT_EQ(in_task.size(), 5U) << "the classes of a task differ";
      seen.merge(in_task);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), source.classes(part));
    all.merge(seen);
  }
  EXPECT_EQ(all.size(), 22U);
}

double nearest_mean_accuracy(const Blobs& source, const Tensor& embedding) {
  const int64_t tasks = 300;
  const meta::TaskBatch batch = source.tasks(Part::test, 0, tasks);
  const Tensor train = batch.train_inputs.matmul(embedding);  // one shot: class by class
  const Tensor valid = batch.valid_inputs.matmul(embedding);
  return at::cdist(valid, train).argmin(-1).eq(batch.valid_targets).to(at::kDouble).mean().item<double>() *
         100;
}

// What makes them worth learning: the best linear embedding in the sense of Fisher, from training classes
// alone, recognises test classes far better than raw features do.
TEST(Blobs, reward_an_embedding_learned_on_training_classes) {
  const Blobs source({5, 1, 15}, {}, 1, doubles());
  const meta::TaskBatch train = source.tasks(Part::train, 0, 400);
  const Tensor rows = train.valid_inputs.reshape({-1, 15, 32});
  const Tensor within = (rows - rows.mean(1, true)).reshape({-1, 32});
  const Tensor covariance = within.t().matmul(within) / within.size(0);
  const auto [values, vectors] = at::linalg_eigh(covariance);
  const Tensor whitening = vectors.matmul(at::diag(values.rsqrt()));
  const double raw = nearest_mean_accuracy(source, at::eye(32, doubles()));
  const double learned = nearest_mean_accuracy(source, whitening);
  EXPECT_GT(raw, 25) << "above chance";
  EXPECT_GT(learned, raw + 30);
}

TEST(Blobs, refuse_what_they_cannot_do) {
  EXPECT_THAT(message([] {
                Blobs({17, 1, 1}, {}, 0, floats());
              }),
              AllOf(HasSubstr("ways = 17"), HasSubstr("16 valid classes")));
  EXPECT_THAT(message([] { Blobs({1, 1, 1}, {}, 0, floats()); }), HasSubstr("ways = 1: must be 2 to"));
  EXPECT_THAT(message([] { Blobs({5, 0, 1}, {}, 0, floats()); }), HasSubstr("shots = 0: must be 1 to"));
  EXPECT_THAT(message([] { Blobs({5, 1, 0}, {}, 0, floats()); }), HasSubstr("queries = 0: must be 1 to"));
  EXPECT_THAT(message([] { BlobsOptions{.features = 7}.validate(); }),
              HasSubstr("features = 7: must be 8 to"));
  EXPECT_THAT(message([] { BlobsOptions{.noise = -1}.validate(); }), HasSubstr("noise = -1: must be finite"));
}

}  // namespace
}  // namespace bilevel::test
