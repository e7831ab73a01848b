#include "bilevel/tables/tune_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/lbfgs.h"
#include "bilevel/core/random.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/held_out_loss.h"
#include "bilevel/tables/lasso_path.h"
#include "bilevel/tables/penalty_groups.h"
#include "bilevel/tables/scaled_table.h"
#include "bilevel/tables/softmax_fit.h"
#include "bilevel/tables/unseen_gain.h"

namespace bilevel {
namespace {

constexpr double strongest_single = 9, weakest_single = -7, single_step = 2;
constexpr double single_deviation = 3;  // of the one logarithm around 0: a few rows tell it badly
constexpr double prior_deviation = 1;   // of a column's logarithm around the common one
constexpr double largest_logarithm = 16;
constexpr double sole_share = 0.99;           // of the likelihood: the others do not count
constexpr int64_t most_lasso_columns = 2000;  // its Gram matrix, for every fold
constexpr double largest_first_step = 0.5;    // of the logarithm that moves most

struct Found {
  Tensor logarithms;  // as HeldOutLoss takes them
  double loss = std::numeric_limits<double>::infinity();
  Tensor losses = {};  // of the held-out rows
};

// Where a parabola through three points at equal distances has its minimum, in distances from the middle one;
// 0 where it has none between them.
double parabola_minimum(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  return bend > 0 ? std::clamp(0.5 * (left - right) / bend, -1.0, 1.0) : 0;
}

// From strong to weak until it rises clearly or twice, and then once between: the loss is flat around its
// minimum, and less so than the noise of the folds.
Found search_single(HeldOutLoss& loss, const TableHooks& hooks) {
  Found best;
  std::vector<double> values;
  const auto evaluate = [&](double logarithm) {
    hooks.say(fmt::format("one regulariser, {:.3g}", std::exp(logarithm)));
    const Tensor all = at::full({loss.columns()}, logarithm, at::kDouble);
    const double prior = 0.5 * logarithm * logarithm / (single_deviation * single_deviation * loss.count());
    const double held_out = loss(all);
    if (values.empty() || held_out + prior < *std::min_element(values.begin(), values.end())) {
      best = {.logarithms = all, .loss = held_out, .losses = loss.losses()};
    }
    values.push_back(held_out + prior);
  };
  for (double logarithm = strongest_single; logarithm >= weakest_single; logarithm -= single_step) {
    evaluate(logarithm);
    const size_t n = values.size();
    if (n > 2 && values[n - 1] > values[n - 2] && values[n - 2] > values[n - 3]) break;
    if (gain_of(loss.losses() - best.losses).clear()) break;
  }
  const auto middle = std::min_element(values.begin(), values.end()) - values.begin();
  if (middle > 0 && middle + 1 < static_cast<int64_t>(values.size())) {
    const double moved = parabola_minimum(*(values.begin() + middle - 1), *(values.begin() + middle),
                                          *(values.begin() + middle + 1));
    if (moved != 0) evaluate(strongest_single - single_step * (static_cast<double>(middle) + moved));
  }
  return best;
}

// From the one penalty, over as many numbers as there are groups.
Found search_groups(HeldOutLoss& loss, const Found& single, const PenaltyGroups& groups,
                    const TableHooks& hooks, int64_t& gradients) {
  Found best;
  const double weight = 1 / (prior_deviation * prior_deviation * loss.count());
  const auto gradient = [&](const Tensor& moved) {
    hooks.say(fmt::format("{} regularisers, loss {:.4f}", groups.count(), best.loss));
    ++gradients;
    const Tensor spread = groups.spread(moved);
    const Tensor start = spread.dim() > 1 ? single.logarithms.unsqueeze(1) : single.logarithms;
    const Tensor logarithms = (spread + start).clamp(-largest_logarithm, largest_logarithm);
    const double value = loss(logarithms) + 0.5 * weight * moved.square().sum().item<double>();
    if (std::isfinite(value) && value < best.loss) best = {logarithms, value};
    return groups.gathered(loss.gradient()).add_(moved, weight);
  };
  const Tensor start = at::zeros({groups.count()}, at::kDouble), first = gradient(start);
  const double steepest = first.abs().max().item<double>();
  LbfgsOptions options;
  options.most_gradients = loss.most_outer_gradients();
  options.relative_tolerance = 1e-2;
  options.first_step = steepest > 0 ? std::min(1 / weight, largest_first_step / steepest) : 1;
  bool known = true;  // the gradient at the start
  (void)minimize([&](const Tensor& moved) { return std::exchange(known, false) ? first : gradient(moved); },
                 start, options);
  return best;
}

// The loss that penalties of their own save on rows that the search for them has not seen.
Gain nested_gain(const HeldOutRows& rows, const HeldOutLoss& at_single, const Found& single,
                 const PenaltyGroups& groups, uint64_t seed, const TableHooks& hooks, TuneTableResult& r) {
  const Tensor held = rows.fold.ge(0).nonzero().squeeze(1);
  const auto gains = [&](const Tensor& part) {
    const Tensor unseen = held.index_select(0, part);
    const Tensor seen = at::ones_like(rows.fold, at::kBool).index_fill_(0, unseen, 0).nonzero().squeeze(1);
    const HeldOutRows others = rows.subset(seen), test = rows.subset(unseen);
    if (others.leaves_a_fold_empty()) return Tensor();
    const std::unique_ptr<HeldOutLoss> loss = HeldOutLoss::of(others);
    loss->start_from(at_single);  // with the one penalty, most of their rows are the same
    const Found found = search_groups(*loss, single, groups, hooks, r.outer_gradients);
    const auto losses = [&](const Tensor& logarithms) {
      return loss->losses_of(test, loss->refit(logarithms, r.counts));
    };
    const Tensor saved = losses(single.logarithms) - losses(found.logarithms);
    r.counts.add(loss->counts());
    return saved;
  };
  return gain_on_unseen_rows(rows.labels.index_select(0, held), rows.targets.size(1), seed, gains);
}

struct Candidate {
  Found found;
  Tensor differences;  // prediction - target of held-out rows
};

// The one penalty, the lasso and the adaptive lasso.
std::vector<Candidate> sparse_candidates(const HeldOutRows& rows, const Found& single,
                                         const Tensor& single_differences, const TableHooks& hooks) {
  std::vector<Candidate> all = {{single, single_differences.squeeze(1)}};
  for (const bool adaptive : {false, true}) {
    hooks.say(adaptive ? "the adaptive lasso" : "the lasso");
    const LassoPath path = lasso_path(rows, adaptive ? single.logarithms : Tensor());
    all.push_back({{.logarithms = path.logarithms}, path.differences});
  }
  return all;
}

struct Average {
  std::vector<double> shares;
  Tensor logarithms;  // of the penalties whose prior has the mean of the variances, 1 / penalty
  Tensor losses;      // of held-out rows
};

Average averaged(const std::vector<Candidate>& all, uint64_t seed) {
  std::vector<Tensor> differences;
  for (const Candidate& one : all) differences.push_back(one.differences);
  Average average{.shares = likelihood_shares(differences, seed), .logarithms = {}, .losses = {}};
  Tensor difference = at::zeros_like(differences[0]), variance = at::zeros_like(all[0].found.logarithms);
  for (size_t k = 0; k < all.size(); ++k) {
    difference += average.shares[k] * differences[k];
    variance += average.shares[k] * all[k].found.logarithms.neg().exp();
  }
  average.logarithms = variance.log().neg();
  average.losses = difference.square();
  return average;
}

void check(const TuneTableData& data, const TuneTableOptions& options) {
  const bool is_squared = options.loss == TableLoss::squared;
  if (is_squared && options.per_class) {
    throw std::invalid_argument("per_class: the squared loss has no classes");
  }
  if (!is_squared && data.classes < 2) {
    throw std::invalid_argument("labels of one class leave nothing to tune");
  }
  for (const auto& [labels, set] :
       {std::pair{&data.train.labels, "training"}, std::pair{&data.valid.labels, "validation"}}) {
    if (!labels->defined() || labels->numel() == 0) continue;
    if (is_squared) {
      if (!labels->isfinite().all().item<bool>()) {
        throw std::invalid_argument(fmt::format("a {} target is not finite", set));
      }
    } else if (labels->min().item<int64_t>() < 0 || labels->max().item<int64_t>() >= data.classes) {
      throw std::invalid_argument(fmt::format("a {} label is outside 0 .. {}", set, data.classes - 1));
    }
  }
  if (is_squared && data.train.labels.max().equal(data.train.labels.min())) {
    throw std::invalid_argument("targets that are all the same leave nothing to tune");
  }
}

HeldOutRows rows_of(const TuneTableData& data, const TuneTableOptions& options, const TableScale& scale) {
  const bool has_valid = data.valid.size() > 0, is_squared = options.loss == TableLoss::squared;
  HeldOutRows rows;
  rows.loss = options.loss;
  rows.scaled = scale.scaled(data.train.features);
  Tensor labels = data.train.labels;
  if (has_valid) {
    rows.scaled = at::cat({rows.scaled, scale.scaled(data.valid.features)});
    labels = at::cat({labels, data.valid.labels});
  }
  rows.labels = is_squared ? at::zeros({labels.numel()}, at::kLong) : labels;
  rows.targets = is_squared ? labels.to(at::kDouble).unsqueeze(1) : label_matrix(labels, data.classes);
  if (has_valid) {
    rows.folds = 1;
    rows.fold =
        at::cat({at::full({data.train.size()}, -1, at::kLong), at::zeros({data.valid.size()}, at::kLong)});
  } else {
    Random random(named_seed(options.seed, "folds"));
    rows.folds = options.folds;
    rows.fold = stratified_folds(rows.labels, rows.targets.size(1), options.folds, random);
  }
  return rows;
}

}  // namespace

void TuneTableOptions::validate(int64_t rows) const {
  if (folds < 2 || folds > rows) {
    throw std::invalid_argument(
        fmt::format("folds = {}: must be 2 to {}, the number of training rows", folds, rows));
  }
}

TuneTableResult tune_table(const TuneTableData& data, const TuneTableOptions& options,
                           const TableHooks& hooks) {
  check(data, options);
  if (data.valid.size() == 0) options.validate(data.train.size());
  const PenaltyGroups groups(data.train.features.columns(), data.groups,
                             options.per_class ? data.classes : 0);
  const TableScale scale({data.train.features}, options.standardize);
  const HeldOutRows rows = rows_of(data, options, scale);

  TuneTableResult r;
  const bool is_squared = options.loss == TableLoss::squared;
  const std::unique_ptr<HeldOutLoss> loss = HeldOutLoss::of(rows);
  const auto finish = [&](const Found& found) {
    TunedTable tuned;
    tuned.logarithms = found.logarithms;
    (void)(*loss)(found.logarithms);
    // As it was searched on: another start of the fits changes digits that do not matter, but should not
    // differ.
    tuned.held_out_loss = (found.losses.defined() ? found.losses : loss->losses()).mean().item<double>();
    tuned.held_out_score = loss->score();
    tuned.weights = scale.in_users_units(loss->refit(found.logarithms, r.counts));
    return tuned;
  };
  const Found single = search_single(*loss, hooks);
  r.single = finish(single);
  if (options.per_column && groups.count() > 1) {
    const Tensor losses = loss->losses();
    r.searched = true;
    r.by_class = options.per_class;
    if (is_squared && !data.groups.defined() && rows.columns() <= most_lasso_columns) {
      const std::vector<Candidate> all = sparse_candidates(rows, single, loss->differences(), hooks);
      const Average average = averaged(all, options.seed);
      r.shares = average.shares;
      const Gain gain = gain_of(losses - average.losses);
      if (gain.mean > 0 && r.shares[0] < sole_share) {
        Tensor weights = r.shares[0] * r.single.weights;
        for (size_t k = 1; k < all.size(); ++k) weights += r.shares[k] * finish(all[k].found).weights;
        r.freed = {.logarithms = average.logarithms,
                   .weights = weights,
                   .held_out_loss = average.losses.mean().item<double>(),
                   .held_out_score = determination(average.losses, rows.held_out_targets())};
        r.gain = gain.mean;
        r.gain_error = gain.error;
        r.averaged = true;
        r.kept_single = false;
        r.counts.add(loss->counts());
        return r;
      }
    }
    // The check comes first: where it fails, which the first part of the rows mostly tells, all rows need no
    // search.
    const Gain gain = nested_gain(rows, *loss, single, groups, options.seed, hooks, r);
    r.gain = gain.mean;
    r.gain_error = gain.error;
    r.kept_single = !gain.clear();
    if (!r.kept_single) r.freed = finish(search_groups(*loss, single, groups, hooks, r.outer_gradients));
  }
  r.counts.add(loss->counts());
  return r;
}

}  // namespace bilevel
