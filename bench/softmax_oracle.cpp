// The closed forms of softmax regression (problems/softmax_*.h), measured. Tables:
//
//   products   the time of each derivative: dense, sparse and by autograd, with the GB/s of data read
//   text       a sparse set of 20 Newsgroups' size: a Hessian product against reading the non-zeros once at
//              the bandwidth that this process measures, and the rise of its memory
//   growth     a Hessian product from 5,000 to 60,000 examples, and from 5 to 40 classes
//   jobs       100 inner steps, CG-10 and reverse-100, as one line of name=value for bench/compare_softmax
//
// The data is synthetic with MNIST's sizes and its 19 % of non-zeros, in the middle of the picture as there,
// or read: --features X.npy --labels y.npy (half trains, half validates). --text PATH reads 20 Newsgroups,
// its folder or tar (data/newsgroups.h); otherwise words are drawn by Zipf's law.
//
// Options: --only TABLE, --threads, --allocator, --double, --rounds, --examples, --storage dense|sparse (of
// the jobs), --write DIR (the pictures as features.npy and labels.npy, for the peer).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "bench/support.h"
#include "bilevel/core/autograd.h"
#include "bilevel/core/random.h"
#include "bilevel/data/newsgroups.h"
#include "bilevel/data/npy.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/regularized_softmax.h"
#include "bilevel/problems/softmax_kernels.h"
#include "bilevel/problems/weighted_softmax.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::Batch;
using bilevel::CleaningData;
using bilevel::FeatureMatrix;
using bilevel::Linearization;
using bilevel::Tensor;
using Storage = FeatureMatrix::Storage;

// The process's own seconds where it has one thread, so that other processes are not measured; else the
// wall's.
double now() {
  timespec time{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of many short runs: whatever else the machine does only ever adds to them.
double fastest_ms(int64_t rounds, const std::function<void()>& work) {
  work();
  double fastest = 1e300;
  for (int64_t i = 0; i < rounds; ++i) {
    const double begin = now();
    work();
    fastest = std::min(fastest, 1e3 * (now() - begin));
  }
  return fastest;
}

// Bytes a second of reading an array much larger than a core's caches, by all the threads: the best of
// several.
double read_bandwidth() {
  const Tensor array = at::ones({64 << 20}, at::kFloat);  // 256 MiB
  const float* from = array.data_ptr<float>();
  const int64_t threads = at::get_num_threads(), share = array.numel() / threads;
  double best = 0;
  std::vector<float> sums(static_cast<size_t>(threads));
  for (int i = 0; i < 10; ++i) {
    const double begin = now();
    at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = t * share; j < (t + 1) * share; j += 16) sum += from[j];  // one number a cache line
        sums[static_cast<size_t>(t)] += sum;
      }
    });
    best = std::max(best, static_cast<double>(array.nbytes()) / (now() - begin));
  }
  benchmark::DoNotOptimize(sums.data());
  return best;
}

// Pictures of 28 x 28 whose strokes lie in the middle, and a column of ones: 19 % are not zero.
Tensor pictures(int64_t count, uint64_t seed) {
  bilevel::Random random(seed);
  const Tensor axis = at::linspace(-1, 1, 28, at::kDouble);
  const Tensor radius = (axis.unsqueeze(0).square() + axis.unsqueeze(1).square()).reshape({1, 784});
  const Tensor ink = random.normal({count, 784}, at::kDouble) - 4.2 * (radius - 0.38);
  const Tensor values = random.normal({count, 784}, at::kDouble).sigmoid();
  return at::cat({values * ink.gt(0.55), at::ones({count, 1}, at::kDouble)}, 1);
}

CleaningData picture_data(int64_t train, int64_t valid, int64_t classes) {
  CleaningData data;
  data.classes = classes;
  data.train = {pictures(train, 1), at::arange(train, at::kLong).remainder(classes)};
  data.valid = {pictures(valid, 2), at::arange(valid, at::kLong).remainder(classes)};
  return data;
}

CleaningData read_data(const std::string& features, const std::string& labels) {
  const Tensor x = bilevel::read_npy(features), y = bilevel::read_npy(labels).to(at::kLong);
  const int64_t half = x.size(0) / 2;
  CleaningData data;
  data.classes = y.max().item<int64_t>() + 1;
  data.train = {x.slice(0, 0, half), y.slice(0, 0, half)};
  data.valid = {x.slice(0, half, 2 * half), y.slice(0, half, 2 * half)};
  return data;
}

bilevel::LabelledRows text_data(const std::string& path, at::ScalarType dtype) {
  if (!path.empty()) {
    const bilevel::Newsgroups posts = bilevel::read_newsgroups(path, {.dtype = dtype});
    const bilevel::SparseMatrix& words = posts.train;
    return {FeatureMatrix::from_csr(words.row_start, words.column, words.value, words.columns),
            posts.train_labels};
  }
  // About 100 different words a post: word j with a probability that falls like 1/j, no word twice.
  const int64_t posts = 11314, words = 101631;
  bilevel::Random random(3);
  const Tensor rank = random.permutation(words);  // an alphabet knows nothing of frequency
  std::vector<int64_t> offsets{0};
  std::vector<Tensor> columns, values;
  for (int64_t i = 0; i < posts; ++i) {
    const Tensor drawn = random.normal({112}, at::kDouble).mul(0.5).erf().add(1).div(2);  // about uniform
    const Tensor word = drawn.mul(std::log(static_cast<double>(words))).exp().sub(1).to(at::kLong);
    const Tensor chosen =
        std::get<0>(at::_unique2(rank.index_select(0, word.clamp(0, words - 1)), /*sorted=*/true));
    columns.push_back(chosen.to(at::kInt));
    values.push_back(at::full({chosen.numel()}, 1 / std::sqrt(static_cast<double>(chosen.numel())), dtype));
    offsets.push_back(offsets.back() + chosen.numel());
  }
  return {FeatureMatrix::from_csr(at::tensor(offsets, at::kLong), at::cat(columns), at::cat(values), words),
          at::arange(posts, at::kLong).remainder(20)};
}

struct Direction {
  Tensor w, x, v, u;
  explicit Direction(const bilevel::Problem& problem) {
    bilevel::Random random(5);
    w = problem.initial_inner(0);
    x = problem.initial_outer(0);
    v = random.normal(w.sizes(), w.options());
    u = random.normal(x.sizes(), x.options());
    w = w + 0.05 * random.normal(w.sizes(), w.options());
  }
};

void products_table(const CleaningData& data, at::ScalarType dtype, int64_t rounds) {
  const bilevel::WeightedSoftmax dense(data, 0.001, dtype, Storage::dense);
  const bilevel::WeightedSoftmax sparse(data, 0.001, dtype, Storage::sparse);
  const bilevel::WeightedSoftmax chosen(data, 0.001, dtype);
  const bilevel::HyperCleaning reference(data, 0.001, dtype);
  const Direction at(reference);
  const auto& matrix = sparse.train().features;
  fmt::print(
      "products: {} x {}, {} classes, {:.1f} % not zero; chosen by itself: {}\n", matrix.rows(),
      matrix.features(), data.classes,
      100.0 * static_cast<double>(matrix.stored()) / static_cast<double>(matrix.rows() * matrix.features()),
      chosen.train().features.is_sparse() ? "sparse" : "dense");
  fmt::print("{:<28} {:>10} {:>7} {:>10} {:>7} {:>12} {:>8} {:>8}\n", "", "dense ms", "GB/s", "sparse ms",
             "GB/s", "autograd ms", "x dense", "x sparse");
  using Work = std::function<void(const bilevel::Problem&, Linearization&)>;
  const std::vector<std::pair<std::string, Work>> works = {
      {"gradient", [&](const auto& p, auto&) { p.inner_gradient(at.w, at.x, {}); }},
      {"hessian, kept", [&](const auto&, auto& kept) { kept.hessian(at.v); }},
      {"hessian, from scratch", [&](const auto& p, auto&) { p.linearize(at.w, at.x, {})->hessian(at.v); }},
      {"cross, kept", [&](const auto&, auto& kept) { kept.cross(at.v); }},
      {"transposed cross, kept", [&](const auto&, auto& kept) { kept.cross_transposed(at.u); }},
      {"both, kept", [&](const auto&, auto& kept) { kept.hessian_and_cross(at.v); }},
      {"both, from scratch",
       [&](const auto& p, auto&) { p.linearize(at.w, at.x, {})->hessian_and_cross(at.v); }},
      {"grad_x g", [&](const auto& p, auto&) { p.inner_gradient_in_outer(at.w, at.x, {}); }},
      {"outer gradients", [&](const auto& p, auto&) { p.outer_gradients(at.w, at.x, {}); }},
  };
  for (const auto& [name, work] : works) {
    std::vector<double> ms;
    for (const bilevel::Problem* problem :
         {static_cast<const bilevel::Problem*>(&dense), static_cast<const bilevel::Problem*>(&sparse),
          static_cast<const bilevel::Problem*>(&reference)}) {
      const auto kept = problem->linearize(at.w, at.x, {});
      ms.push_back(fastest_ms(rounds, [&, &todo = work] { todo(*problem, *kept); }));
    }
    const auto rate = [](const FeatureMatrix& m, double t) {
      return static_cast<double>(m.bytes()) / t / 1e6;
    };
    fmt::print("{:<28} {:>10.3f} {:>7.1f} {:>10.3f} {:>7.1f} {:>12.3f} {:>8.1f} {:>8.1f}\n", name, ms[0],
               rate(dense.train().features, ms[0]), ms[1], rate(matrix, ms[1]), ms[2], ms[2] / ms[0],
               ms[2] / ms[1]);
  }
}

// The multiply-adds of a Hessian product without its memory: the two products of the non-zeros by rows, with
// the columns folded so that the table stays in the first cache: a floor for these kernels.
template <class T>
double arithmetic_ms(const FeatureMatrix& matrix, int64_t classes, int64_t rounds) {
  const int64_t stride = bilevel::softmax::stride_for(classes), threads = at::get_num_threads();
  const auto& kernel = bilevel::softmax::kernels<T>(stride);
  const Tensor folded = matrix.by_rows().indices.bitwise_and(127);
  const Tensor table = at::ones({128 * stride}, matrix.by_rows().values.options());
  const Tensor products = at::empty({matrix.rows() * stride}, table.options());
  const bilevel::softmax::SparseRows<T> rows{matrix.by_rows().offsets.data_ptr<int64_t>(),
                                             folded.data_ptr<int32_t>(),
                                             matrix.by_rows().values.template data_ptr<T>()};
  return 2 * fastest_ms(rounds, [&] {
           at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
             const int64_t begin = matrix.rows() * first / threads, end = matrix.rows() * last / threads;
             kernel.sparse_product(rows, {nullptr, begin, end - begin}, table.data_ptr<T>(), stride,
                                   products.data_ptr<T>() + begin * stride);
           });
         });
}

void text_table(const std::string& path, at::ScalarType dtype, int64_t rounds) {
  const bilevel::LabelledRows rows = text_data(path, dtype);
  const int64_t classes = rows.labels.max().item<int64_t>() + 1;
  const bilevel::RegularizedSoftmax problem(rows, rows, classes);
  const Direction at(problem);
  const auto& matrix = rows.features;
  const double bandwidth = read_bandwidth();
  const double read_ms = 1e3 * static_cast<double>(matrix.bytes()) / bandwidth;
  const auto kept = problem.linearize(at.w, at.x, {});
  const Batch batch{bilevel::Random(9).permutation(matrix.rows()).slice(0, 0, 1000).contiguous(), 0};
  const auto kept_batch = problem.linearize(at.w, at.x, batch);
  kept->hessian(at.v);
  const bench::PeakMemory memory;
  kept->hessian(at.v);
  const int64_t rise = memory.rise();
  fmt::print(
      "\ntext: {} x {}, {} classes, {} non-zeros ({:.1f} MB with indices; w takes {:.1f} MB); this process "
      "reads "
      "{:.1f} GB/s,\nso the non-zeros once take {:.2f} ms. Memory rise of a Hessian product: {:.1f} MB "
      "(dense data "
      "would be {:.0f} MB)\n",
      matrix.rows(), matrix.features(), classes, matrix.stored(), static_cast<double>(matrix.bytes()) / 1e6,
      static_cast<double>(at.w.nbytes()) / 1e6, bandwidth / 1e9, read_ms, static_cast<double>(rise) / 1e6,
      static_cast<double>(matrix.rows() * matrix.features()) * static_cast<double>(c10::elementSize(dtype)) /
          1e6);
  const std::vector<std::pair<std::string, std::function<void()>>> works = {
      {"gradient", [&] { problem.inner_gradient(at.w, at.x, {}); }},
      {"hessian, kept", [&] { kept->hessian(at.v); }},
      {"both, from scratch", [&] { problem.linearize(at.w, at.x, {})->hessian_and_cross(at.v); }},
      {"cross", [&] { kept->cross(at.v); }},
      {"hessian, kept, batch 1000", [&] { kept_batch->hessian(at.v); }},
      {"copying v alone", [&] { at.v.clone(); }},
  };
  for (const auto& [name, work] : works) {
    const double ms = fastest_ms(rounds, work);
    fmt::print("{:<28} {:>10.3f} ms {:>7.2f} x reading the non-zeros\n", name, ms, ms / read_ms);
  }
  const double traffic_ms =
      1e3 * static_cast<double>(matrix.bytes() + 2 * static_cast<int64_t>(at.v.nbytes())) / bandwidth;
  const double arithmetic = dtype == at::kFloat ? arithmetic_ms<float>(matrix, classes, rounds)
                                                : arithmetic_ms<double>(matrix, classes, rounds);
  fmt::print("Floors: the least traffic, and the arithmetic of these kernels\n");
  for (const auto& [name, ms] : {std::pair{"non-zeros, v and Hv, once", traffic_ms},
                                 std::pair{"its multiply-adds, in L1", arithmetic}}) {
    fmt::print("{:<28} {:>10.3f} ms {:>7.2f} x reading the non-zeros\n", name, ms, ms / read_ms);
  }
}

void growth_table(at::ScalarType dtype, int64_t rounds) {
  fmt::print("\ngrowth: a Hessian product, 785 features\n{:>9} {:>8} {:>10} {:>12} {:>10} {:>12}\n",
             "examples", "classes", "dense ms", "us/example", "sparse ms", "us/example");
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{5000, 10},  {10000, 10}, {20000, 10},
                                                          {40000, 10}, {60000, 10}, {5000, 5},
                                                          {5000, 20},  {5000, 32},  {5000, 64}};
  for (const auto& [examples, classes] : sizes) {
    const CleaningData data = picture_data(examples, 100, classes);
    double ms[2];
    for (const Storage storage : {Storage::dense, Storage::sparse}) {
      const bilevel::WeightedSoftmax problem(data, 0.001, dtype, storage);
      const Direction at(problem);
      const auto kept = problem.linearize(at.w, at.x, {});
      ms[storage == Storage::sparse ? 1 : 0] = fastest_ms(rounds, [&] { kept->hessian(at.v); });
    }
    const auto count = static_cast<double>(examples);
    fmt::print("{:>9} {:>8} {:>10.3f} {:>12.3f} {:>10.3f} {:>12.3f}\n", examples, classes, ms[0],
               1e3 * ms[0] / count, ms[1], 1e3 * ms[1] / count);
  }
}

// The peer's three jobs; the first hypergradients go along, to be compared.
void jobs_line(const CleaningData& data, at::ScalarType dtype, int64_t rounds, const std::string& storage) {
  const bilevel::WeightedSoftmax problem(data, 0.001, dtype,
                                         storage == "dense"    ? Storage::dense
                                         : storage == "sparse" ? Storage::sparse
                                                               : Storage::automatic);
  const Tensor x = problem.initial_outer(0), start = problem.initial_inner(0);
  bilevel::Oracle oracle(problem);
  bilevel::InnerLoop run;
  run.options.steps = 100;
  run.options.rate = 0.1;
  run.measure_gradient = false;
  for (int64_t t = 0; t < run.options.steps; ++t) run.keep.push_back(t);
  const bilevel::Trajectory inner = bilevel::run_inner(oracle, x, start, run);
  const double steps_ms = fastest_ms(rounds, [&] { bilevel::run_inner(oracle, x, start, run); });
  std::string line = fmt::format("steps={}", steps_ms);
  for (const std::string name : {"cg", "reverse"}) {
    bilevel::EstimatorSettings settings;
    settings.terms = 10;
    const auto estimator = bilevel::make_estimator(name, settings);
    bilevel::Trajectory kept = inner;
    Tensor value;
    const double ms = fastest_ms(
        rounds, [&] { value = estimator->estimate(oracle, {.x = x, .inner = kept}).value.to(at::kDouble); });
    line += fmt::format(" {}={} {}_norm={:.12g} {}_first={:.12g}", name, ms, name,
                        value.norm().item<double>(), name, value[0].item<double>());
  }
  fmt::print("{}\n", line);
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  const bench::Machine machine(options);
  const at::ScalarType dtype = options.flag("double") ? at::kDouble : at::kFloat;
  const int64_t rounds = options.integer("rounds", 40);
  const int64_t examples = options.integer("examples", 5000);
  const std::string only = options.text("only", "");
  const std::string features = options.text("features", ""), labels = options.text("labels", "");
  const std::string text = options.text("text", ""), storage = options.text("storage", "automatic");
  const std::string write = options.text("write", "");
  options.finish();
  const auto wanted = [&](const char* table) {
    return only.empty() ? table != std::string("jobs") : only == table;
  };

  const auto data = [&] {
    return features.empty() ? picture_data(examples, examples, 10) : read_data(features, labels);
  };
  if (!write.empty()) {  // the same numbers for the peer
    const CleaningData made = data();
    bilevel::write_npy(write + "/features.npy",
                       at::cat({made.train.features, made.valid.features}).to(at::kFloat));
    bilevel::write_npy(write + "/labels.npy", at::cat({made.train.labels, made.valid.labels}));
    return 0;
  }
  if (!wanted("jobs")) {
    fmt::print("{} threads, {}, {} instructions, allocator {}, fastest of {}\n\n", machine.threads,
               c10::toString(dtype), name_of(bilevel::softmax::best_instructions()), machine.allocator,
               rounds);
  }
  if (wanted("jobs")) jobs_line(data(), dtype, rounds, storage);
  if (wanted("products")) products_table(data(), dtype, rounds);
  if (wanted("text")) text_table(text, dtype, rounds);
  if (wanted("growth")) growth_table(dtype, rounds);
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_softmax_oracle: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_softmax_oracle: {}\n", error.what());
  return 1;
}
