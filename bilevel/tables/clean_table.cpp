#include "bilevel/tables/clean_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/core/random.h"
#include "bilevel/tables/cross_fit.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/line_minimum.h"
#include "bilevel/tables/noise_matrix.h"
#include "bilevel/tables/scaled_table.h"
#include "bilevel/tables/unseen_gain.h"

namespace bilevel {
namespace {

// Logarithms of the regulariser, from strong to weak, and how far the final model may go below the one of the
// labels.
constexpr double strongest = 6, weakest = -3, path_step = 1;
constexpr int64_t final_steps_down = 6;
constexpr double path_tolerance = 1e-4, final_fit_tolerance = 1e-6;
constexpr double even_strength = 1000;                            // of a prior that leaves even noise even
constexpr double first_share = 0.3;                               // of wrong labels, where EM begins
constexpr int64_t most_rounds = 6, most_temperature_rounds = 10;  // of the model and T; of T and temperature
constexpr double noise_tolerance = 1e-2, temperature_width = 0.02;  // a change below which they have settled
constexpr double least_suspect = 0.25;         // a label that is right three times of four is none
constexpr double coldest = -1.5, hottest = 2;  // of the temperature's logarithm

double sum_of(const Tensor& values) { return values.sum().item<double>(); }

struct Job {
  const CleanTableData& data;
  const CleanTableOptions& options;
  const TableHooks& hooks;
  int64_t rows, trusted, classes;
  TableScale scale;
  Tensor all;              // scaled rows, the trusted ones last
  Tensor fold;             // of all of them
  Tensor trusted_targets;  // one-hot
  CrossFit cross;
  FitCounts counts = {};

  static TableScale scale_of(const CleanTableData& d, bool standardize) {
    std::vector<Features> parts{d.train.features};
    if (d.trusted.size() > 0) parts.push_back(d.trusted.features);
    return {parts, standardize};
  }
  Tensor scaled_rows() const {
    const Tensor noisy = scale.scaled(data.train.features);
    return trusted == 0 ? noisy : at::cat({noisy, scale.scaled(data.trusted.features)});
  }
  Tensor dealt() const {
    Random random(named_seed(options.seed, "folds"));
    const Tensor first = stratified_folds(data.train.labels, classes, options.folds, random);
    return trusted == 0
               ? first
               : at::cat({first, stratified_folds(data.trusted.labels, classes, options.folds, random)});
  }

  Job(const CleanTableData& d, const CleanTableOptions& o, const TableHooks& h)
      : data(d),
        options(o),
        hooks(h),
        rows(d.train.size()),
        trusted(d.trusted.size()),
        classes(d.classes),
        scale(scale_of(d, o.standardize)),
        all(scaled_rows()),
        fold(dealt()),
        trusted_targets(label_matrix(trusted == 0 ? at::empty({0}, at::kLong) : d.trusted.labels, d.classes)),
        cross(all, fold, o.folds, d.classes) {}

  Tensor train_part(const Tensor& values) const { return values.narrow(0, 0, rows); }
  Tensor trusted_part(const Tensor& values) const { return values.narrow(0, rows, trusted); }
  // Of scores of all rows.
  Tensor trusted_losses(const Tensor& scores, double temperature) const {
    return -((temperature * trusted_part(scores)).log_softmax(1) * trusted_targets).sum(1);
  }
  SoftmaxTargets targets(const Tensor& of_train, TargetKind kind) const {
    return {at::cat({of_train, trusted_targets}), kind};
  }
  double least_right() const { return trusted == 0 ? 0.5 : 0; }
  double mean(double sum) const { return sum / static_cast<double>(rows + trusted); }
};

struct Temperature {
  double value = 1;
  double prior() const { return 0.5 * std::log(value) * std::log(value); }
};

// A factor of the scores. Held-out probabilities of a strongly regularised fit are too timid, and T would
// explain that as fewer wrong labels than there are.
Temperature best_temperature(const std::function<double(double temperature)>& loss) {
  const auto of_logarithm = [&](double s) { return loss(std::exp(s)) + 0.5 * s * s; };
  return {std::exp(line_minimum(of_logarithm, coldest, hottest, temperature_width).at)};
}

struct Label {  // what is known of the labels with one regulariser
  double logarithm = 0, loss = std::numeric_limits<double>::infinity();
  Tensor losses;  // of held-out labels, one for each of all rows; `loss` is their mean, with the prior
  Tensor scores, noise;
  Temperature temperature;
  double strength = 0;
  std::vector<Tensor> weights;
};

NoiseEvidence evidence(const Job& job, const Tensor& scores, Temperature temperature) {
  return {(temperature.value * job.train_part(scores)).softmax(1), job.data.train.labels};
}

// T and the temperature for these held-out scores, one after the other until both stay.
void settle(const Job& job, const Tensor& scores, double strength, Label& now) {
  for (int64_t round = 0; round < most_temperature_rounds; ++round) {
    now.noise =
        estimate_noise(evidence(job, scores, now.temperature), now.noise, strength, job.least_right());
    if (job.trusted == 0) break;  // nothing else than trusted rows tells timid predictions from wrong labels
    const Temperature next = best_temperature([&](double t) {
      return sum_of(given_label_losses(evidence(job, scores, {t}), now.noise)) +
             sum_of(job.trusted_losses(scores, t));
    });
    const bool stays = std::abs(std::log(next.value / now.temperature.value)) < temperature_width;
    now.temperature = next;
    if (stays) break;
  }
}

// The strength of T's prior, and the loss of held-out labels with it.
void judge(const Job& job, Label& now) {
  const NoiseStrength chosen =
      choose_noise_strength(evidence(job, now.scores, now.temperature), now.noise, job.train_part(job.fold),
                            job.options.folds, job.least_right());
  now.strength = chosen.strength;
  settle(job, now.scores, now.strength, now);
  now.loss = std::numeric_limits<double>::infinity();
  if (!std::isfinite(chosen.loss)) return;
  now.losses = at::cat({chosen.losses, job.trusted_losses(now.scores, now.temperature.value)});
  now.loss = job.mean(sum_of(now.losses) + now.temperature.prior());
}

// Models of the labels: the best, and what all of them predict together, each with the share that the
// likelihood of held-out labels under it gives.
class LabelModels {
 public:
  void add(const Job& job, const Label& one) {
    if (!std::isfinite(one.loss)) return;
    losses_.push_back(one.losses);
    priors_.push_back(-one.temperature.prior());
    posteriors_.push_back(true_label_posterior(evidence(job, one.scores, one.temperature), one.noise));
    noises_.push_back(one.noise);
    if (one.loss < best_.loss) best_ = one;
  }
  const Label& best() const { return best_; }
  void average(uint64_t seed, CleanTableResult& r) const {
    if (losses_.empty()) {
      throw NotFiniteError("clean: no noise model has a finite loss; are the features too large?");
    }
    const Tensor losses = at::stack(losses_), priors = at::tensor(priors_, at::kDouble);
    const Tensor shares = bootstrap_shares(
        losses.size(1), seed, [&](const Tensor& weights) { return priors - losses.mv(weights); });
    const auto mean = [&](const std::vector<Tensor>& predicted) {
      return at::tensordot(shares, at::stack(predicted), {0}, {0});
    };
    r.posterior = mean(posteriors_);
    r.noise = mean(noises_);
  }

 private:
  Label best_;
  std::vector<Tensor> losses_, posteriors_, noises_;
  std::vector<double> priors_;
};

// Regressions that know T.
void learn_labels(Job& job, LabelModels& models) {
  Label now;
  now.noise = even_noise(job.classes, first_share);
  now.strength = 30;
  int64_t rising = 0;
  double before = std::numeric_limits<double>::infinity();
  for (double logarithm = strongest; logarithm >= weakest; logarithm -= path_step) {
    job.hooks.say(fmt::format("noise model, regulariser {:.3g}", std::exp(logarithm)));
    now.logarithm = logarithm;
    for (int64_t round = 0; round < most_rounds; ++round) {
      const Tensor likelihoods = now.noise.t().index_select(0, job.data.train.labels);
      now.scores = job.cross.held_out_scores(job.targets(likelihoods, TargetKind::likelihoods),
                                             alike(logarithm, job.cross.columns()), path_tolerance);
      const Tensor last = now.noise;
      settle(job, now.scores, now.strength, now);
      if ((now.noise - last).abs().max().item<double>() < noise_tolerance) break;
    }
    judge(job, now);
    now.weights = job.cross.weights();
    models.add(job, now);
    rising = now.loss > before ? rising + 1 : 0;
    before = now.loss;
    if (rising >= 2) break;
  }
}

// A regression that takes every label as right is fitted without T, which is applied to its predictions
// afterwards; it is more stable where rows are few. Even noise is enough to find the best of them.
Label with_even_noise(const Job& job, const Tensor& scores, double logarithm) {
  Label now;
  now.noise = even_noise(job.classes, first_share);
  now.strength = even_strength;
  now.logarithm = logarithm;
  now.scores = scores;
  now.weights = job.cross.weights();
  settle(job, scores, now.strength, now);
  now.loss = job.mean(sum_of(given_label_losses(evidence(job, scores, now.temperature), now.noise)) +
                      sum_of(job.trusted_losses(scores, now.temperature.value)) + now.temperature.prior());
  return now;
}

// The mean loss of held-out labels with every label taken as right. The temperature is that of the noise
// models, so that noise alone decides between them.
double loss_without_noise(const Job& job, const Tensor& scores, const Tensor& given) {
  const auto loss = [&](double t) {
    return -sum_of((t * job.train_part(scores)).log_softmax(1) * given) +
           sum_of(job.trusted_losses(scores, t));
  };
  const Temperature t = job.trusted == 0 ? Temperature{} : best_temperature(loss);
  return job.mean(loss(t.value) + t.prior());
}

using Seen = std::function<void(double logarithm, const Tensor& held_out_scores)>;

// The best regulariser from `first` downwards for soft labels of the training rows, by the loss of held-out
// ones, and the model of all rows with it.
TableModel fit_model(Job& job, const Tensor& soft_labels, double first, double last, bool with_temperature,
                     const Seen& seen = {}) {
  const SoftmaxTargets targets = job.targets(soft_labels, TargetKind::soft_labels);
  TableModel best;
  double best_sum = std::numeric_limits<double>::infinity(), before = best_sum;
  Tensor best_scores, start;
  for (double logarithm = first; logarithm >= last; logarithm -= path_step) {
    job.hooks.say(fmt::format("model, regulariser {:.3g}", std::exp(logarithm)));
    const Tensor scores =
        job.cross.held_out_scores(targets, alike(logarithm, job.cross.columns()), path_tolerance);
    const auto loss = [&](double t) { return -sum_of((t * scores).log_softmax(1) * targets.values); };
    const Temperature t = with_temperature ? best_temperature(loss) : Temperature{};
    const double sum = loss(t.value);
    if (seen) seen(logarithm, scores);
    if (sum < best_sum) {
      best_sum = sum;
      best.logarithm = logarithm;
      best.temperature = t.value;
      best_scores = scores;
      start = job.cross.mean_weights();
    }
    if (sum > before) break;
    before = sum;
  }
  const SoftmaxFit fit =
      fit_softmax(job.all, targets, penalties(alike(best.logarithm, job.cross.columns()), job.all.size(0)),
                  start, final_fit_tolerance);
  ++job.counts.fits;
  job.counts.unconverged += fit.converged ? 0 : 1;
  job.counts.gradients += fit.gradients;
  best.weights = job.scale.in_users_units(best.temperature * fit.weights);
  best.held_out_loss = job.mean(best_sum);
  best.trusted_loss = best.trusted_accuracy = std::numeric_limits<double>::quiet_NaN();
  if (job.trusted > 0) {
    best.trusted_loss = job.trusted_losses(best_scores, best.temperature).mean().item<double>();
    best.trusted_accuracy = 100 * job.trusted_part(best_scores)
                                      .argmax(1)
                                      .eq(job.data.trusted.labels)
                                      .to(at::kDouble)
                                      .mean()
                                      .item<double>();
  }
  return best;
}

void flag(const CleanTableData& data, CleanTableResult& r) {
  const auto [sorted, order] = r.wrong.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const int64_t flagged = std::min(most_expected_f1(sorted), sorted.ge(least_suspect).sum().item<int64_t>());
  r.threshold = flagged == 0 ? least_suspect : sorted[flagged - 1].item<double>();
  const Tensor suspects = order.narrow(0, 0, flagged).contiguous();
  r.suspects.assign(suspects.data_ptr<int64_t>(), suspects.data_ptr<int64_t>() + flagged);
  const Tensor others = r.posterior.scatter(1, data.train.labels.unsqueeze(1), -1);
  r.suggested = r.posterior.argmax(1);
  r.suggested.index_put_({suspects}, others.index_select(0, suspects).argmax(1));
}

void check(const CleanTableData& data) {
  if (data.classes < 2) throw std::invalid_argument("labels of one class leave nothing to clean");
  for (const auto& [labels, set] :
       {std::pair{&data.train.labels, "training"}, std::pair{&data.trusted.labels, "trusted"}}) {
    if (!labels->defined() || labels->numel() == 0) continue;
    if (labels->min().item<int64_t>() < 0 || labels->max().item<int64_t>() >= data.classes) {
      throw std::invalid_argument(fmt::format("a {} label is outside 0 .. {}", set, data.classes - 1));
    }
  }
}

}  // namespace

void CleanTableOptions::validate(int64_t rows) const {
  if (folds < 2 || folds > rows) {
    throw std::invalid_argument(
        fmt::format("folds = {}: must be 2 to {}, the number of training rows", folds, rows));
  }
}

int64_t most_expected_f1(const Tensor& sorted_probabilities) {
  const Tensor p = sorted_probabilities.to(at::kDouble);
  const Tensor counts = at::arange(1, p.numel() + 1, at::kDouble);
  return (2 * p.cumsum(0) / (counts + p.sum())).argmax().item<int64_t>() + 1;
}

CleanTableResult clean_table(const CleanTableData& data, const CleanTableOptions& options,
                             const TableHooks& hooks) {
  check(data);
  options.validate(data.train.size());
  Job job(data, options, hooks);
  const Tensor given = label_matrix(data.train.labels, data.classes);
  CleanTableResult r;
  Label plain;
  r.baseline_loss = std::numeric_limits<double>::infinity();
  r.baseline = fit_model(job, given, strongest, weakest, false, [&](double logarithm, const Tensor& scores) {
    r.baseline_loss = std::min(r.baseline_loss, loss_without_noise(job, scores, given));
    Label now = with_even_noise(job, scores, logarithm);
    if (now.loss < plain.loss) plain = std::move(now);
  });
  job.cross.start_from(
      std::vector<Tensor>(static_cast<size_t>(options.folds), at::zeros_like(job.cross.mean_weights())));
  LabelModels models;
  learn_labels(job, models);
  if (plain.scores.defined()) {
    judge(job, plain);
    models.add(job, plain);
  }
  models.average(options.seed, r);
  const Label& labels = models.best();
  r.loss = labels.loss;
  r.noise_strength = labels.strength;
  r.label_temperature = labels.temperature.value;
  r.label_logarithm = labels.logarithm;
  r.wrong = 1 - r.posterior.gather(1, data.train.labels.unsqueeze(1)).squeeze(1);
  r.expected_wrong = sum_of(r.wrong);
  r.kept_baseline = !(r.loss < r.baseline_loss);
  if (r.kept_baseline) {
    r.model = r.baseline;
    r.suggested = data.train.labels.clone();
    r.warnings.push_back(fmt::format(
        "the noise model predicts held-out labels no better (loss {:.4f}) than taking every label as right "
        "({:.4f}): there is little to clean, or softmax regression is too weak to tell; the model of the "
        "labels as given is returned, and nothing is suspect",
        r.loss, r.baseline_loss));
  } else {
    job.cross.start_from(labels.weights);
    r.model = fit_model(job, r.posterior, labels.logarithm,
                        labels.logarithm - path_step * (final_steps_down - 1), true);
    flag(data, r);
  }
  if (job.trusted == 0) {
    r.warnings.emplace_back(
        "there are no trusted rows: which of two labels that are often exchanged is the right one, and how "
        "probable it is, rests on most labels of each class being right");
  }
  r.counts = job.counts;
  r.counts.fits += job.cross.counts().fits;
  r.counts.unconverged += job.cross.counts().unconverged;
  r.counts.gradients += job.cross.counts().gradients;
  return r;
}

}  // namespace bilevel
