// Finds the wrong labels of your own tensors: two clouds of points, of which some have the other one's
// label, and a few points that are known to be right. Needs nlohmann-json, which the jobs' results are also
// given as.

#include <bilevel/bilevel.h>
#include <bilevel/jobs/clean.h>

#include <iostream>

int main() {
  const auto clouds = [](int64_t points) {  // a spiral around (-1, 0) and one around (1, 0)
    const at::Tensor labels = at::arange(points).remainder(2), angle = at::arange(points, at::kDouble);
    const at::Tensor radius = at::arange(points, at::kDouble).mul(0.9).remainder(1.0);
    const at::Tensor x = labels.mul(2).sub(1) + radius * angle.cos(), y = radius * angle.sin();
    return bilevel::ExampleSet(at::stack({x, y}, 1), labels);
  };
  bilevel::ExampleSets data{.train = clouds(200), .valid = clouds(40), .class_names = {"left", "right"}};
  data.train.labels = data.train.labels.clone();
  for (const int64_t i : {20, 51, 82, 113, 144}) data.train.labels[i] = 1 - data.train.labels[i];  // mistakes

  bilevel::CleanJobOptions options;
  options.compute.dtype = "double";
  bilevel::RunContext context;  // keeps and prints nothing
  const bilevel::CleanJobResult result = bilevel::run_clean(options, data, context);
  for (const int64_t i : result.clean.suspects) {
    const auto suggested = static_cast<size_t>(result.clean.suggested[i].item<int64_t>());
    std::cout << "point " << i << " is probably " << data.class_names[suggested] << ", weight "
              << result.clean.weights[i].item<double>() << "\n";
  }
}
