#include "bilevel/tables/tune_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/lbfgs.h"
#include "bilevel/core/random.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/scaled_table.h"

namespace bilevel {
namespace {

constexpr double strongest_single = 9, weakest_single = -7, single_step = 2;
constexpr double search_tolerance = 1e-4, refit_tolerance = 1e-6, hessian_tolerance = 1e-2;
constexpr double single_deviation = 3;  // of the one logarithm around 0: a few rows tell it badly
constexpr double prior_deviation = 1;   // of a column's logarithm around the common one
constexpr int64_t most_outer_gradients = 8;
constexpr double largest_first_step = 0.5;  // of the logarithm that moves most
constexpr int64_t nested_folds = 5;
constexpr double errors_to_gain = 1;

// Rows with their labels, and which fold holds each out; below 0 = none does.
struct Rows {
  Tensor scaled, labels, targets, fold;
  int64_t folds = 0;

  Rows subset(const Tensor& index) const {
    return {scaled.index_select(0, index), labels.index_select(0, index), targets.index_select(0, index),
            fold.index_select(0, index), folds};
  }
  // What a final model is fitted to: all rows that some fit may see.
  Tensor fitted() const {
    return (folds == 1 ? fold.lt(0) : at::ones_like(fold, at::kBool)).nonzero().squeeze(1);
  }
  // With a handful of rows: a fold without rows, or all rows in one fold, leaves nothing to measure or to
  // fit.
  bool leaves_a_fold_empty() const {
    for (int64_t k = 0; k < folds; ++k) {
      const Tensor held = fold.eq(k);
      if (!held.any().item<bool>() || held.all().item<bool>()) return true;
    }
    return false;
  }
};

// The mean cross entropy of the held-out rows as a function of the logarithms.
class HeldOutLoss {
 public:
  explicit HeldOutLoss(const Rows& rows)
      : rows_(rows),
        cross_(rows.scaled, rows.fold, rows.folds, rows.targets.size(1)),
        held_(rows.fold.ge(0).to(at::kDouble).unsqueeze(1)),
        count_(held_.sum().item<double>()) {}

  double operator()(const Tensor& logarithms) {
    scores_ = cross_.held_out_scores({rows_.targets, TargetKind::soft_labels}, logarithms, search_tolerance);
    return -(scores_.log_softmax(1) * rows_.targets * held_).sum().item<double>() / count_;
  }
  // Where it was evaluated last.
  Tensor gradient() {
    return cross_.derivative((scores_.softmax(1) - rows_.targets) * held_ / count_, hessian_tolerance);
  }
  // One per held-out row.
  Tensor losses() const {
    const Tensor index = held_.squeeze(1).nonzero().squeeze(1);
    return -(scores_.log_softmax(1) * rows_.targets).sum(1).index_select(0, index);
  }
  double accuracy() const {
    const Tensor right = scores_.argmax(1).eq(rows_.labels).to(at::kDouble) * held_.squeeze(1);
    return 100 * right.sum().item<double>() / count_;
  }
  CrossFit& cross() { return cross_; }
  int64_t columns() const { return cross_.columns(); }
  double count() const { return count_; }

 private:
  const Rows& rows_;
  CrossFit cross_;
  Tensor held_, scores_;
  double count_;
};

struct Found {
  Tensor logarithms;
  double loss = std::numeric_limits<double>::infinity();
};

// Where a parabola through three points at equal distances has its minimum, in distances from the middle one;
// 0 where it has none between them.
double parabola_minimum(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  return bend > 0 ? std::clamp(0.5 * (left - right) / bend, -1.0, 1.0) : 0;
}

// From strong to weak until it rises twice, and then once between: the loss is flat around its minimum, and
// less so than the noise of the folds.
Found search_single(HeldOutLoss& loss, const TableHooks& hooks) {
  Found best;
  std::vector<double> values;
  const auto evaluate = [&](double logarithm) {
    hooks.say(fmt::format("one regulariser, {:.3g}", std::exp(logarithm)));
    const Tensor all = alike(logarithm, loss.columns());
    const double prior = 0.5 * logarithm * logarithm / (single_deviation * single_deviation * loss.count());
    values.push_back(loss(all) + prior);
    if (values.back() < best.loss) best = {all, values.back()};
  };
  for (double logarithm = strongest_single; logarithm >= weakest_single; logarithm -= single_step) {
    evaluate(logarithm);
    const size_t n = values.size();
    if (n > 2 && values[n - 1] > values[n - 2] && values[n - 2] > values[n - 3]) break;
  }
  const auto middle = std::min_element(values.begin(), values.end()) - values.begin();
  if (middle > 0 && middle + 1 < static_cast<int64_t>(values.size())) {
    const double moved = parabola_minimum(*(values.begin() + middle - 1), *(values.begin() + middle),
                                          *(values.begin() + middle + 1));
    if (moved != 0) evaluate(strongest_single - single_step * (static_cast<double>(middle) + moved));
  }
  return best;
}

Found search_columns(HeldOutLoss& loss, const Found& single, const TableHooks& hooks, int64_t& gradients) {
  Found best;
  const double weight = 1 / (prior_deviation * prior_deviation * loss.count());
  const auto gradient = [&](const Tensor& moved) {
    hooks.say(fmt::format("one regulariser per column, loss {:.4f}", best.loss));
    ++gradients;
    const Tensor logarithms = single.logarithms + moved;
    const double value = loss(logarithms) + 0.5 * weight * moved.square().sum().item<double>();
    if (std::isfinite(value) && value < best.loss) best = {logarithms, value};
    return loss.gradient().add_(moved, weight);
  };
  const Tensor start = at::zeros_like(single.logarithms), first = gradient(start);
  const double steepest = first.abs().max().item<double>();
  LbfgsOptions options;
  options.most_gradients = most_outer_gradients;
  options.relative_tolerance = 1e-2;
  options.first_step = steepest > 0 ? std::min(1 / weight, largest_first_step / steepest) : 1;
  bool known = true;  // the gradient at the start
  (void)minimize([&](const Tensor& moved) { return std::exchange(known, false) ? first : gradient(moved); },
                 start, options);
  return best;
}

Tensor refit(const Rows& rows, const Tensor& logarithms, const Tensor& start, FitCounts& counts) {
  const Tensor index = rows.fitted();
  const SoftmaxFit fit =
      fit_softmax(rows.scaled.index_select(0, index), {rows.targets.index_select(0, index)},
                  penalties(logarithms, index.numel()), start, refit_tolerance);
  ++counts.fits;
  counts.unconverged += fit.converged ? 0 : 1;
  counts.gradients += fit.gradients;
  return fit.weights;
}

void add(FitCounts& to, const FitCounts& more) {
  to.fits += more.fits;
  to.unconverged += more.unconverged;
  to.gradients += more.gradients;
  to.hessian_products += more.hessian_products;
}

struct Gain {
  double mean = 0, error = 0;
  bool clear() const { return mean > errors_to_gain * error; }
};

Gain gain_of(const Tensor& gains) {
  const auto count = static_cast<double>(gains.numel());
  return {.mean = gains.mean().item<double>(),
          .error = count > 1 ? gains.std().item<double>() / std::sqrt(count)
                             : std::numeric_limits<double>::infinity()};
}

// The loss that the columns' own penalties save on rows that the search for them has not seen. It ends where
// the parts so far save nothing.
Gain nested_gain(const Rows& rows, const Found& single, uint64_t seed, const TableHooks& hooks,
                 TuneTableResult& r) {
  Random random(named_seed(seed, "nested folds"));
  const Tensor held = rows.fold.ge(0).nonzero().squeeze(1);
  const Tensor part =
      stratified_folds(rows.labels.index_select(0, held), rows.targets.size(1), nested_folds, random);
  std::vector<Tensor> gains;
  Gain gain;
  for (int64_t k = 0; k < nested_folds; ++k) {
    const Tensor unseen = held.index_select(0, part.eq(k).nonzero().squeeze(1));
    if (unseen.numel() == 0) continue;
    const Tensor seen = at::ones_like(rows.fold, at::kBool).index_fill_(0, unseen, 0).nonzero().squeeze(1);
    const Rows others = rows.subset(seen), test = rows.subset(unseen);
    if (others.leaves_a_fold_empty()) continue;
    HeldOutLoss loss(others);
    const Found columns = search_columns(loss, single, hooks, r.outer_gradients);
    const auto losses = [&](const Tensor& logarithms) {
      const Tensor weights = refit(others, logarithms, loss.cross().mean_weights(), r.counts);
      return -(test.scaled.mm(weights).log_softmax(1) * test.targets).sum(1);
    };
    gains.push_back(losses(single.logarithms) - losses(columns.logarithms));
    add(r.counts, loss.cross().counts());
    gain = gain_of(at::cat(gains));
    if (!(gain.mean > 0)) break;
  }
  return gain;
}

void check(const TuneTableData& data) {
  if (data.classes < 2) throw std::invalid_argument("labels of one class leave nothing to tune");
  for (const auto& [labels, set] :
       {std::pair{&data.labels, "training"}, std::pair{&data.valid_labels, "validation"}}) {
    if (labels->numel() == 0) continue;
    if (labels->min().item<int64_t>() < 0 || labels->max().item<int64_t>() >= data.classes) {
      throw std::invalid_argument(fmt::format("a {} label is outside 0 .. {}", set, data.classes - 1));
    }
  }
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
  check(data);
  const bool has_valid = data.valid_labels.numel() > 0;
  if (!has_valid) options.validate(data.labels.numel());
  const TableScale scale({data.train}, options.standardize);
  Rows rows;
  rows.scaled = scale.scaled(data.train);
  rows.labels = data.labels;
  if (has_valid) {
    rows.scaled = at::cat({rows.scaled, scale.scaled(data.valid)});
    rows.labels = at::cat({data.labels, data.valid_labels});
    rows.folds = 1;
    rows.fold = at::cat({at::full({data.labels.numel()}, -1, at::kLong), at::zeros_like(data.valid_labels)});
  } else {
    Random random(named_seed(options.seed, "folds"));
    rows.folds = options.folds;
    rows.fold = stratified_folds(data.labels, data.classes, options.folds, random);
  }
  rows.targets = label_matrix(rows.labels, data.classes);

  TuneTableResult r;
  HeldOutLoss loss(rows);
  const auto finish = [&](const Found& found) {
    TunedTable tuned;
    tuned.logarithms = found.logarithms;
    tuned.held_out_loss = loss(found.logarithms);
    tuned.held_out_accuracy = loss.accuracy();
    tuned.weights =
        scale.in_users_units(refit(rows, found.logarithms, loss.cross().mean_weights(), r.counts));
    return tuned;
  };
  const Found single = search_single(loss, hooks);
  r.single = finish(single);
  if (options.per_column && data.train.columns() > 1) {
    const Tensor losses = loss.losses();
    r.per_column = finish(search_columns(loss, single, hooks, r.outer_gradients));
    // What gains nothing on the rows that it was searched on gains nothing on others.
    Gain gain = gain_of(losses - loss.losses());
    r.nested = gain.clear();
    if (r.nested) gain = nested_gain(rows, single, options.seed, hooks, r);
    r.gain = gain.mean;
    r.gain_error = gain.error;
    r.kept_single = !(r.nested && gain.clear());
  }
  add(r.counts, loss.cross().counts());
  return r;
}

}  // namespace bilevel
