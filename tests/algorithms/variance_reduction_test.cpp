// The rules that fight the noise of minibatches: their estimates against dense derivatives of the same
// samples, which samples those are, and that the noise goes away.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bilevel/algorithms/sampled_hypergradient.h"
#include "bilevel/algorithms/soba.h"
#include "tests/algorithms/direct_term.h"
#include "tests/algorithms/known_optima.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool same(const Batch& a, const Batch& b) {
  if (a.is_full() || b.is_full()) return a.is_full() && b.is_full();
  return a.seed == b.seed && a.index.equal(b.index);
}

// Ridge with rates that minibatches of four allow, from a w where no derivative is zero.
struct Noisy {
  Known known = known_ridge();
  WithDirectTerm problem{*known.problem};
  AlgorithmSettings settings = settings_for(known);
  StreamOptions batches{.inner_batch = 4, .outer_batch = 4};
  Tensor w = random_vector(3, 8);
  Noisy() {
    settings.inner.rate *= 0.3;
    settings.inner.steps = 3;
    settings.outer.rate *= 0.03;
    settings.hypergradient.terms = 3;
  }
};

// g = x w^2 / 2 has negative curvature at the first x alone, which a Neumann series notices: the second
// iteration's direction still holds a solve there.
TEST(VarianceReduction, reports_the_worst_of_the_solves_behind_a_direction) {
  const auto inner = [](const Tensor& w, const Tensor& x, const Batch&) {
    return (x * w.square()).sum() / 2;
  };
  const auto outer = [](const Tensor& w, const Tensor& x, const Batch&) {
    return (w - 1).square().sum() / 2 - 3 * x.sum();
  };
  const FunctionProblem problem(inner, outer, vec({0.5}), vec({-1}));
  AlgorithmSettings settings;
  settings.inner = {.steps = 1, .rate = 0.1};
  settings.outer.rate = 1;
  settings.hypergradient.terms = 3;
  settings.hypergradient.linear_rate = 0.5;
  for (const char* name : {"mrbo", "vrbo"}) {
    const auto rule = make_algorithm(name, settings);
    Oracle oracle(problem);
    Streams streams(1, 1, 1);
    AlgorithmState state = rule->init(oracle, vec({-1}), vec({0.5}));
    EXPECT_EQ(rule->step(oracle, state, streams).status, Status::negative_curvature) << name;
    ASSERT_GT(number(state.x), 0) << name;
    ASSERT_LT(number(state.x), 4) << name;
    EXPECT_EQ(rule->step(oracle, state, streams).status, Status::negative_curvature) << name;
  }
}

TEST(Saba, is_soba_where_the_set_is_one_block) {
  Noisy noisy;
  for (const int64_t batch : {0, 12, 50}) {
    const SolveOptions options{
        .iterations = 40, .records = 1, .seed = 2, .batches = {.inner_batch = batch, .outer_batch = batch}};
    const SolveSummary saba = solve_from(noisy.known, *make_algorithm("saba", noisy.settings), options);
    const SolveSummary soba = solve_from(noisy.known, *make_algorithm("soba", noisy.settings), options);
    EXPECT_TRUE(saba.state.x.equal(soba.state.x));
    EXPECT_TRUE(saba.state.v.equal(soba.state.v));
    EXPECT_TRUE(saba.state.inner.w.equal(soba.state.inner.w));
    EXPECT_TRUE(saba.state.memory.empty());
  }
}

TEST(Saba, gets_all_the_way_with_a_constant_rate_where_soba_stalls) {
  const Noisy noisy;
  const SolveOptions options{.iterations = 3000, .records = 1, .batches = noisy.batches};
  const auto part = [&](const std::string& name) {
    const SolveSummary summary = solve_from(noisy.known, *make_algorithm(name, noisy.settings), options);
    EXPECT_EQ(summary.reason, StopReason::iterations) << summary.message;
    return noisy.known.gradient_norm(summary.state.x) / noisy.known.gradient_norm(noisy.known.x);
  };
  EXPECT_LT(part("saba"), 1e-8);
  EXPECT_GT(part("soba"), 1e-2);
}

// Blocks of 5, 5 and 2 of twelve examples.
TEST(Saba, visits_every_block_first_and_then_one_by_its_weight) {
  Noisy noisy;
  noisy.settings.outer.rate *= 0.1;  // only the batches are looked at
  CountingProblem counted(noisy.problem);
  const auto algorithm = make_algorithm("saba", noisy.settings);
  Oracle oracle(counted);
  Streams streams(4, 12, 12, {.inner_batch = 5, .outer_batch = 4});
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  algorithm->step(oracle, state, streams);
  ASSERT_EQ(counted.calls().inner_gradient.size(), 3U);
  ASSERT_EQ(counted.calls().hessian.size(), 3U);
  ASSERT_EQ(counted.calls().cross.size(), 3U);
  ASSERT_EQ(counted.calls().outer_gradient.size(), 3U);
  std::vector<Tensor> blocks;
  for (const Batch& batch : counted.calls().inner_gradient) blocks.push_back(batch.index);
  EXPECT_TRUE(at::cat(blocks).equal(at::arange(12, at::kLong)));
  EXPECT_EQ(blocks[2].numel(), 2);

  counted.forget();
  constexpr int draws = 1500;
  for (int k = 0; k < draws; ++k) algorithm->step(oracle, state, streams);
  ASSERT_EQ(counted.calls().inner_gradient.size(), static_cast<size_t>(draws));
  ASSERT_EQ(counted.calls().outer_gradient.size(), static_cast<size_t>(draws));
  std::map<int64_t, int> hits;  // by the first example
  for (const Batch& batch : counted.calls().inner_gradient) ++hits[batch.index[0].item<int64_t>()];
  // standard deviations sqrt(p (1 - p) draws): 19 and 14
  EXPECT_NEAR(hits[0], draws * 5 / 12.0, 5 * 19);
  EXPECT_NEAR(hits[5], draws * 5 / 12.0, 5 * 19);
  EXPECT_NEAR(hits[10], draws * 2 / 12.0, 5 * 14);

  // The running mean is that of what is kept.
  const auto mean = [&](const std::string& set, const std::vector<double>& weights) {
    Tensor sum = at::zeros_like(state.memory.at(set + "/mean"));
    for (size_t b = 0; b < weights.size(); ++b) {
      sum = sum + weights[b] / 12 * state.memory.at(set + "/" + std::to_string(b));
    }
    return sum;
  };
  EXPECT_LT(relative_error(state.memory.at("inner/mean"), mean("inner", {5, 5, 2})), 1e-12);
  EXPECT_LT(relative_error(state.memory.at("outer/mean"), mean("outer", {4, 4, 4})), 1e-12);
}

TEST(Saba, steps_along_saga_estimates) {
  const Noisy noisy;
  CountingProblem counted(noisy.problem);
  const auto algorithm = make_algorithm("saba", noisy.settings);
  Oracle oracle(counted);
  Streams streams(4, 12, 12, {.inner_batch = 5, .outer_batch = 5});
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  const auto block = [](int64_t b) {
    return Batch{.index = at::arange(5 * b, std::min<int64_t>(12, 5 * b + 5), at::kLong)};
  };
  const std::vector<double> weights{5.0 / 12, 5.0 / 12, 2.0 / 12};
  // Where each block was last looked at: (w, v, x), from dense derivatives.
  struct Seen {
    Tensor g, hv, cv, p, direct;
  };
  std::vector<Seen> inner(3), outer(3);
  const auto look = [&](int64_t b) {
    const Dense d = dense_at(noisy.problem, state.inner.w, state.x, block(b), block(b));
    return Seen{d.gradient, d.hessian.mv(state.v), d.cross.mv(state.v), d.p, d.direct};
  };
  for (int64_t k = 0; k < 12; ++k) {
    const auto mean = [&](const std::vector<Seen>& seen, Tensor Seen::*member) {
      return weights[0] * (seen[0].*member) + weights[1] * (seen[1].*member) + weights[2] * (seen[2].*member);
    };
    const AlgorithmState before = state;
    std::vector<Seen> now;
    for (int64_t b = 0; b < 3; ++b) now.push_back(look(b));
    counted.forget();
    const IterationSummary summary = algorithm->step(oracle, state, streams);
    Tensor w_direction, v_direction, x_direction;
    if (k == 0) {
      inner = outer = now;
      w_direction = mean(inner, &Seen::g);
      v_direction = mean(inner, &Seen::hv) - mean(outer, &Seen::p);
      x_direction = mean(outer, &Seen::direct) - mean(inner, &Seen::cv);
    } else {
      const auto i = static_cast<size_t>(counted.calls().inner_gradient[0].index[0].item<int64_t>() / 5);
      const auto j = static_cast<size_t>(counted.calls().outer_gradient[0].index[0].item<int64_t>() / 5);
      w_direction = now[i].g - inner[i].g + mean(inner, &Seen::g);
      v_direction =
          now[i].hv - inner[i].hv + mean(inner, &Seen::hv) - (now[j].p - outer[j].p + mean(outer, &Seen::p));
      x_direction = now[j].direct - outer[j].direct + mean(outer, &Seen::direct) -
                    (now[i].cv - inner[i].cv + mean(inner, &Seen::cv));
      inner[i] = now[i];
      outer[j] = now[j];
    }
    EXPECT_LT(relative_error(before.inner.w - state.inner.w, noisy.settings.inner.rate * w_direction), 1e-10);
    EXPECT_LT(relative_error(before.v - state.v, noisy.settings.inner.rate * v_direction), 1e-10);
    EXPECT_LT(length(summary.direction - x_direction), 1e-10);
  }
}

TEST(MaSoba, is_soba_with_averaging_one_and_its_moving_average_otherwise) {
  Noisy noisy;
  const SolveOptions options{.iterations = 40, .records = 1, .batches = noisy.batches};
  noisy.settings.averaging = 1;
  const SolveSummary one = solve_from(noisy.known, *make_algorithm("ma-soba", noisy.settings), options);
  const SolveSummary soba = solve_from(noisy.known, *make_algorithm("soba", noisy.settings), options);
  EXPECT_TRUE(one.state.x.equal(soba.state.x));
  EXPECT_TRUE(one.state.inner.w.equal(soba.state.inner.w));

  noisy.settings.averaging = 0.25;
  const auto algorithm = make_algorithm("ma-soba", noisy.settings);
  Oracle oracle(noisy.problem);
  Streams streams(1, 12, 12, noisy.batches), again(1, 12, 12, noisy.batches);
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  Tensor average;
  for (int k = 0; k < 5; ++k) {
    const Batch inner = again.inner("sample"), outer = again.outer("sample");
    const Tensor newest = soba_directions(oracle, state, inner, outer).x;
    average = k == 0 ? newest : 0.75 * average + 0.25 * newest;
    EXPECT_LT(length(algorithm->step(oracle, state, streams).direction - average), 1e-14);
  }
}

// df/dx - C v on one sample, by dense derivatives of every batch.
Tensor dense_direction(const std::string& rule, const Problem& problem, const Tensor& w, const Tensor& x,
                       const HypergradientSample& sample, double rate, int64_t terms) {
  const Dense at_cross = dense_at(problem, w, x, sample.cross, sample.outer);
  Tensor summand = at_cross.p, sum = at_cross.p;
  for (const Batch& batch : sample.hessian) {
    summand = summand - rate * dense_at(problem, w, x, batch).hessian.mv(summand);
    sum = sum + summand;
  }
  const Tensor v = rule == "sustain" ? rate * static_cast<double>(terms) * summand : rate * sum;
  return at_cross.direct - at_cross.cross.mv(v);
}

HypergradientSample sample_of(const std::string& rule, Streams& streams, int64_t terms) {
  return draw_hypergradient_sample(streams,
                                   rule == "sustain" ? streams.random("length").below(terms) : terms);
}

class RecursiveRules : public ::testing::TestWithParam<std::string> {};

// `exponent` 0 is a constant rate.
void expect_recursion(const std::string& rule, double averaging, double exponent) {
  Noisy noisy;
  noisy.settings.averaging = averaging;
  if (exponent > 0) noisy.settings.outer.schedule = {.kind = ScheduleKind::power, .exponent = exponent};
  const Problem& problem = noisy.problem;
  const double rate = noisy.settings.inner.rate;
  const int64_t terms = noisy.settings.hypergradient.terms;
  const auto algorithm = make_algorithm(rule, noisy.settings);
  Oracle oracle(problem);
  Streams streams(6, 12, 12, noisy.batches), again(6, 12, 12, noisy.batches);
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  Tensor w_before, x_before, along_w, along_x;
  for (int k = 0; k < 5; ++k) {
    const Tensor w = state.inner.w, x = state.x;
    const Batch batch = again.inner("steps");
    const HypergradientSample sample = sample_of(rule, again, terms);
    const auto direction = [&](const Tensor& at_w, const Tensor& at_x) {
      return dense_direction(rule, problem, at_w, at_x, sample, rate, terms);
    };
    const auto gradient = [&](const Tensor& at_w, const Tensor& at_x) {
      return dense_at(problem, at_w, at_x, batch).gradient;
    };
    const double fall = k == 0 ? 1.0 : std::pow(k, -exponent);  // of the iteration before
    const double forget = averaging * fall * fall;
    if (k == 0 || forget == 1) {
      along_w = gradient(w, x);
      along_x = direction(w, x);
    } else {
      along_w = gradient(w, x) + (1 - forget) * (along_w - gradient(w_before, x_before));
      along_x = direction(w, x) + (1 - forget) * (along_x - direction(w_before, x_before));
    }
    const IterationSummary summary = algorithm->step(oracle, state, streams);
    EXPECT_LT(relative_error(summary.direction, along_x), 1e-10) << rule << " " << k;
    const double s = std::pow(k + 1, -exponent);
    EXPECT_LT(relative_error(state.inner.w, w - rate * s * along_w), 1e-12) << rule << " " << k;
    EXPECT_LT(relative_error(state.x, x - noisy.settings.outer.rate * s * along_x), 1e-12)
        << rule << " " << k;
    w_before = w;
    x_before = x;
  }
}

TEST_P(RecursiveRules, take_plain_directions_with_averaging_one) { expect_recursion(GetParam(), 1, 0); }
TEST_P(RecursiveRules, correct_the_momentum_by_the_old_point_on_the_new_sample) {
  expect_recursion(GetParam(), 0.3, 0);
}
TEST_P(RecursiveRules, let_rates_and_weight_fall_with_the_schedule) {
  expect_recursion(GetParam(), 0.6, 1.0 / 3);
}

// Seen from the problem: the second half of every kind of call repeats the batches of the first half.
TEST_P(RecursiveRules, read_the_same_batches_at_both_points) {
  const Noisy noisy;
  CountingProblem counted(noisy.problem);
  const auto algorithm = make_algorithm(GetParam(), noisy.settings);
  Oracle oracle(counted);
  Streams streams(6, 12, 12, noisy.batches);
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  algorithm->step(oracle, state, streams);
  size_t products = 0;
  for (int k = 0; k < 6; ++k) {
    counted.forget();
    algorithm->step(oracle, state, streams);
    const auto& calls = counted.calls();
    for (const auto* list : {&calls.inner_gradient, &calls.outer_gradient, &calls.hessian, &calls.cross}) {
      ASSERT_EQ(list->size() % 2, 0U);
      const size_t half = list->size() / 2;
      for (size_t i = 0; i < half; ++i) EXPECT_TRUE(same((*list)[i], (*list)[half + i]));
    }
    const size_t half = calls.hessian.size() / 2;
    for (size_t i = 1; i < half; ++i) EXPECT_FALSE(same(calls.hessian[i - 1], calls.hessian[i]));
    products += half;
  }
  EXPECT_GT(products, 0U);
}
INSTANTIATE_TEST_SUITE_P(Algorithms, RecursiveRules, ::testing::Values("mrbo", "sustain"),
                         [](const auto& rule) { return test_name(rule.param); });

TEST(Sustain, has_the_neumann_series_as_its_mean) {
  const Noisy noisy;
  const Problem& problem = noisy.problem;
  const auto algorithm = make_algorithm("sustain", noisy.settings);
  std::map<int64_t, Tensor> by_length;
  for (uint64_t seed = 0; by_length.size() < 3; ++seed) {
    ASSERT_LT(seed, 100U);
    Streams streams(seed, 12, 12);
    const int64_t drawn = streams.random("length").below(3);
    streams.seek({});
    Oracle oracle(problem);
    AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
    by_length[drawn] = algorithm->step(oracle, state, streams).direction;
  }
  const Dense d = dense_at(problem, noisy.w, noisy.known.x);
  const Tensor mean = (by_length.at(0) + by_length.at(1) + by_length.at(2)) / 3;
  const Tensor v = dense_neumann(d.hessian, d.p, noisy.settings.inner.rate, 2);
  EXPECT_LT(relative_error(mean, d.direct - d.cross.mv(v)), 1e-12);
}

// On full sets the corrections telescope: the direction is the series at the point where x stands.
TEST(Vrbo, corrects_its_estimates_along_the_way) {
  const Noisy noisy;
  const Problem& problem = noisy.problem;
  const auto algorithm = make_algorithm("vrbo", noisy.settings);
  Oracle oracle(problem);
  Streams streams(1, 12, 12);
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  for (int k = 0; k < 13; ++k) {
    Tensor w = state.inner.w;
    const Tensor x = state.x;
    // m = 3 of the box: t from 0 to m.
    for (int t = 0; t <= 3 && k > 0; ++t)
      w = w - noisy.settings.inner.rate * dense_at(problem, w, x).gradient;
    const IterationSummary summary = algorithm->step(oracle, state, streams);
    EXPECT_LT(relative_error(state.inner.w, w), 1e-12) << k;
    EXPECT_EQ(state.inner.step, 4 * k);
    const Dense d = dense_at(problem, w, x);
    const Tensor v = dense_neumann(d.hessian, d.p, noisy.settings.inner.rate, 3);
    EXPECT_LT(relative_error(summary.direction, d.direct - d.cross.mv(v)), 1e-10) << k;
  }
}

TEST(Vrbo, takes_the_large_batch_every_period_and_pairs_of_small_ones_between) {
  Noisy noisy;
  noisy.settings.period = 3;
  for (const int64_t large : {0, 8}) {
    noisy.settings.large_batch = large;
    CountingProblem counted(noisy.problem);
    const auto algorithm = make_algorithm("vrbo", noisy.settings);
    Oracle oracle(counted);
    Streams streams(6, 12, 12, noisy.batches);
    AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
    for (int k = 0; k < 8; ++k) {
      counted.forget();
      algorithm->step(oracle, state, streams);
      const auto& calls = counted.calls();
      const auto is_large = [&](const Batch& b) { return b.size(12) == (large == 0 ? 12 : large); };
      if (k % 3 == 0) {
        ASSERT_EQ(calls.outer_gradient.size(), 1U) << k;
        EXPECT_TRUE(is_large(calls.outer_gradient[0]));
        EXPECT_TRUE(is_large(calls.cross.at(0)));
        for (const Batch& batch : calls.hessian) EXPECT_TRUE(is_large(batch));
        EXPECT_TRUE(is_large(calls.inner_gradient.back()));
        ASSERT_EQ(calls.inner_gradient.size(), k == 0 ? 1U : 9U);
      } else {
        ASSERT_EQ(calls.outer_gradient.size(), 10U) << k;
        for (size_t i = 0; i < 10; ++i) {
          EXPECT_EQ(calls.outer_gradient[i].size(12), 4);
          EXPECT_EQ(calls.inner_gradient[i].size(12), 4);
        }
      }
      for (size_t i = 0; i + 1 < calls.inner_gradient.size(); i += 2) {
        EXPECT_TRUE(same(calls.inner_gradient[i], calls.inner_gradient[i + 1])) << k;
        if (i > 0) {
          EXPECT_FALSE(same(calls.inner_gradient[i], calls.inner_gradient[i - 1])) << k;
        }
      }
      for (size_t i = 0; i + 1 < calls.outer_gradient.size(); i += 2) {
        EXPECT_TRUE(same(calls.outer_gradient[i], calls.outer_gradient[i + 1])) << k;
      }
    }
  }
}

TEST(Amigo, is_aid_with_a_fixed_point_on_full_sets) {
  Noisy noisy;
  const SolveOptions options{.iterations = 30, .records = 1};
  const SolveSummary amigo = solve_from(noisy.known, *make_algorithm("amigo", noisy.settings), options);
  const SolveSummary aid = solve_from(noisy.known, *make_algorithm("aid-fp", noisy.settings), options);
  EXPECT_LT(relative_error(amigo.state.x, aid.state.x), 1e-12);
  EXPECT_LT(relative_error(amigo.state.v, aid.state.v), 1e-12);
}

TEST(Amigo, draws_a_batch_for_every_step_of_both_loops) {
  const Noisy noisy;
  CountingProblem counted(noisy.problem);
  const auto algorithm = make_algorithm("amigo", noisy.settings);
  Oracle oracle(counted);
  Streams streams(6, 12, 12, noisy.batches);
  AlgorithmState state = algorithm->init(oracle, noisy.known.x, noisy.w);
  algorithm->step(oracle, state, streams);
  const auto& calls = counted.calls();
  std::vector<Batch> all = calls.inner_gradient;
  all.insert(all.end(), calls.hessian.begin(), calls.hessian.end());
  all.insert(all.end(), calls.cross.begin(), calls.cross.end());
  ASSERT_EQ(all.size(), 7U);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(same(all[i], all[j])) << i << " " << j;
  }
}

TEST(VarianceReduction, misuse_names_the_option) {
  AlgorithmSettings settings;
  settings.averaging = 1.5;
  for (const char* name : {"ma-soba", "mrbo", "sustain"}) {
    EXPECT_THAT(message([&] { make_algorithm(name, settings); }),
                AllOf(HasSubstr(name), HasSubstr("averaging"), HasSubstr("1.5")));
  }
  settings.averaging = 0.1;
  settings.period = 0;
  EXPECT_THAT(message([&] { make_algorithm("vrbo", settings); }), AllOf(HasSubstr("period"), HasSubstr("0")));
  settings.hypergradient.terms = 0;
  EXPECT_THAT(message([&] { make_algorithm("sustain", settings); }), HasSubstr("terms"));
  EXPECT_THAT(message([&] { make_algorithm("amigo", settings); }), HasSubstr("terms = 0"));
  settings.inner.rate = -3;
  EXPECT_THAT(message([&] { make_algorithm("saba", settings); }),
              AllOf(HasSubstr("inner_rate"), HasSubstr("-3")));
}

}  // namespace
}  // namespace bilevel::test
