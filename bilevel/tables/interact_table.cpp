#include "bilevel/tables/interact_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/lbfgs.h"
#include "bilevel/core/random.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/held_out_tasks.h"
#include "bilevel/tables/scaled_table.h"
#include "bilevel/tables/unseen_gain.h"

namespace bilevel {
namespace {

// Logarithms of rho and of the pull towards the mean model, on the sum of the losses.
constexpr double strongest_rho = 7, weakest_rho = -7, rho_step = 2;
constexpr double weakest_pull = -1, pull_step = 2;  // over rho: below it, rho decides
constexpr double one_model = 4;  // a pull of e^4 times the number of rows leaves tasks no freedom
constexpr std::array<double, 2> intercept_parts{1, 0.1};
constexpr int64_t most_models = 192;  // that are compared: the grid of rho, pulls and parts has fewer
constexpr double kept_likelihood = 0.9;
constexpr double rho_deviation =
    3;  // of its logarithm around 0: a prior that is added once to the sum over rows
// Which rows share a fold is random, which matters in small tables: their losses are means over several
// deals. (Those of a common strength; pairs are searched on the first deal.)
constexpr int64_t few_rows = 200, deals_of_few_rows = 3;
constexpr double pair_deviation = 3;  // of a pair's logarithm around the common one
constexpr double largest_offset = 12;
constexpr double largest_pair_step = 1;  // of the logarithm that moves most first
constexpr int64_t most_pair_gradients = 40;

// One strength for all pairs.
struct CommonPull {
  double rho = 0, pull = 0, intercepts = 1;

  Pulls pulls(int64_t tasks) const {
    const Tensor others = at::ones({tasks, tasks}, at::kDouble).fill_diagonal_(0);
    return {others * (pull / (2 * static_cast<double>(tasks))), rho, intercepts};
  }
};

struct Member {
  CommonPull common;
  Tensor losses;  // of held-out rows
  double share = 0;
};

// All of them that may matter: rho from strong to weak until the best of its row is clearly worse, or worse
// twice; for each the pull from one model for all until it is clearly worse than a stronger one of the same
// row, and tasks on their own. (Not than the best of all: where tasks differ, tasks on their own are clearly
// better than one model, and better still may lie between.)
class CommonFamily {
 public:
  // `deals`: of the same rows, which hold other rows out together. Their losses are averaged.
  CommonFamily(std::vector<HeldOutTasks>& deals, const TableHooks& hooks) : deals_(deals), hooks_(hooks) {
    strongest_pull_ = std::log(deals.front().count()) + one_model;
    double last = std::numeric_limits<double>::infinity();
    int64_t rises = 0;
    for (double rho = strongest_rho; rho >= weakest_rho && rises < 2; rho -= rho_step) {
      const size_t first = members_.size();
      evaluate_row(std::exp(rho));
      const Member& best =
          *std::min_element(members_.begin() + static_cast<int64_t>(first), members_.end(), is_better);
      const double value = mean(best);
      rises = value > last ? rises + 1 : 0;
      last = value;
      if (gain_of(best.losses - members_[best_].losses).clear()) break;
    }
  }

  const Member& best() const { return members_[best_]; }
  // The best where the tasks are on their own, or one.
  const Member& best_alone() const {
    return best_where([](const Member& m) { return m.common.pull == 0; });
  }
  const Member& best_pooled() const {
    return best_where([&](const Member& m) { return m.common.pull == std::exp(strongest_pull_); });
  }

  // Those that predict held-out rows well: the fewest that have most of the likelihood. Their shares add up
  // to 1.
  std::vector<Member> likely(uint64_t seed) const {
    std::vector<Tensor> losses;
    std::vector<double> priors;
    for (const Member& member : members_) {
      losses.push_back(member.losses);
      const double offset = std::log(member.common.rho) / rho_deviation;
      priors.push_back(-0.5 * offset * offset);
    }
    const Tensor all = at::stack(losses), prior = at::tensor(priors, at::kDouble);
    const Tensor shares =
        bootstrap_shares(all.size(1), seed, [&](const Tensor& weights) { return prior - all.mv(weights); });
    const auto [sorted, order] = shares.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
    std::vector<Member> kept;
    double sum = 0;
    for (int64_t k = 0; k < sorted.numel() && sum < kept_likelihood; ++k) {
      kept.push_back(members_[static_cast<size_t>(order[k].item<int64_t>())]);
      kept.back().share = sorted[k].item<double>();
      sum += kept.back().share;
    }
    for (Member& member : kept) member.share /= sum;
    return kept;
  }

 private:
  static double mean(const Member& member) { return member.losses.mean().item<double>(); }
  static bool is_better(const Member& a, const Member& b) { return mean(a) < mean(b); }

  template <typename Where>
  const Member& best_where(Where where) const {
    const Member* best = nullptr;
    for (const Member& member : members_) {
      if (where(member) && (best == nullptr || is_better(member, *best))) best = &member;
    }
    return *best;
  }

  void evaluate_row(double rho) {
    for (const double part : intercept_parts) {
      evaluate({rho, std::exp(strongest_pull_), part});
      size_t best = members_.size() - 1;
      const double lowest = std::log(rho) + weakest_pull;
      for (double pull = std::ceil(strongest_pull_ - pull_step); pull >= lowest; pull -= pull_step) {
        evaluate({rho, std::exp(pull), part});
        if (is_better(members_.back(), members_[best])) best = members_.size() - 1;
        if (gain_of(members_.back().losses - members_[best].losses).clear()) break;
      }
    }
    evaluate({rho, 0, 1});
  }

  void evaluate(const CommonPull& common) {
    hooks_.say(fmt::format("one strength for all pairs, {:.3g}, rho {:.3g}", common.pull, common.rho));
    Tensor losses;
    for (HeldOutTasks& deal : deals_) {
      (void)deal(common.pulls(deal.tasks()));
      losses = losses.defined() ? losses + deal.losses() : deal.losses();
    }
    members_.push_back({.common = common, .losses = losses / static_cast<double>(deals_.size())});
    if (is_better(members_.back(), members_[best_])) best_ = members_.size() - 1;
  }

  std::vector<HeldOutTasks>& deals_;
  const TableHooks& hooks_;
  double strongest_pull_ = 0;
  std::vector<Member> members_;
  size_t best_ = 0;
};

// ---- one strength for each pair ----

// x: the logarithms of pairs i < j and of rho, as offsets from the common ones.
class PairPulls {
 public:
  PairPulls(const CommonPull& common, int64_t tasks)
      : common_(common), tasks_(tasks), upper_(at::triu_indices(tasks, tasks, 1)) {}

  int64_t count() const { return upper_.size(1) + 1; }
  Pulls at_offsets(const Tensor& x) const {
    const Tensor factors = x.clamp(-largest_offset, largest_offset).exp();
    Pulls pulls = common_.pulls(tasks_);
    Tensor matrix = at::zeros_like(pulls.coupling);
    matrix.index_put_({upper_[0], upper_[1]}, factors.slice(0, 0, -1));
    pulls.coupling = pulls.coupling * (matrix + matrix.t());
    pulls.regularizer *= factors[-1].item<double>();
    return pulls;
  }
  Tensor gradient(const Pulls& pulls, const PullDerivative& by) const {
    const Tensor pairs = (pulls.coupling * by.coupling).index({upper_[0], upper_[1]});
    return at::cat({pairs, at::full({1}, pulls.regularizer * by.regularizer, at::kDouble)});
  }

 private:
  CommonPull common_;
  int64_t tasks_;
  Tensor upper_;
};

struct FoundPairs {
  Pulls pulls;
  double value = std::numeric_limits<double>::infinity();
};

FoundPairs search_pairs(HeldOutTasks& loss, const CommonPull& common, const TableHooks& hooks,
                        int64_t& gradients) {
  const PairPulls pairs(common, loss.tasks());
  const double weight = 1 / (pair_deviation * pair_deviation * loss.count());
  FoundPairs best;
  const auto gradient = [&](const Tensor& x) {
    hooks.say(fmt::format("{} pairs, loss {:.4f}", pairs.count() - 1, best.value));
    ++gradients;
    const Pulls pulls = pairs.at_offsets(x);
    const double value = loss(pulls) + 0.5 * weight * x.square().sum().item<double>();
    if (std::isfinite(value) && value < best.value) best = {pulls, value};
    return pairs.gradient(pulls, loss.derivative()).add_(x, weight);
  };
  const Tensor start = at::zeros({pairs.count()}, at::kDouble), first = gradient(start);
  const double steepest = first.abs().max().item<double>();
  LbfgsOptions options;
  options.most_gradients = most_pair_gradients;
  options.relative_tolerance = 1e-2;
  options.first_step = steepest > 0 ? std::min(1 / weight, largest_pair_step / steepest) : 1;
  bool known = true;  // the gradient at the start
  (void)minimize([&](const Tensor& x) { return std::exchange(known, false) ? first : gradient(x); }, start,
                 options);
  return best;
}

// ---- the whole ----

Tensor mean_models(const HeldOutTasks& loss, const std::vector<Member>& members, FitCounts& counts) {
  Tensor models;
  for (const Member& member : members) {
    const Tensor one = member.share * loss.refit(member.common.pulls(loss.tasks()), counts);
    models = models.defined() ? models + one : one;
  }
  return models;
}

// The strengths whose prior has the mean of the variances: of the mean model 1 / rho, of what a task differs
// from it 1 / (rho + pull).
CommonPull mean_pull(const std::vector<Member>& members) {
  double of_mean = 0, of_difference = 0, intercepts = 0;
  for (const auto& [common, losses, share] : members) {
    of_mean += share / common.rho;
    of_difference += share / (common.rho + common.pull);
    intercepts += share * common.intercepts;
  }
  return {
      .rho = 1 / of_mean, .pull = std::max(0.0, 1 / of_difference - 1 / of_mean), .intercepts = intercepts};
}

Gain unseen_gain(const TaskRows& rows, const std::vector<Member>& members, const CommonPull& common,
                 uint64_t seed, const TableHooks& hooks, InteractTableResult& r) {
  const Tensor held = rows.fold.ge(0).nonzero().squeeze(1);
  const auto gains = [&](const Tensor& part) {
    const Tensor unseen = held.index_select(0, part);
    const Tensor seen = at::ones_like(rows.fold, at::kBool).index_fill_(0, unseen, 0).nonzero().squeeze(1);
    const TaskRows test = rows.subset(unseen);
    HeldOutTasks loss(rows.subset(seen));
    if (loss.count() == 0) return Tensor();
    const FoundPairs found = search_pairs(loss, common, hooks, r.outer_gradients);
    const Tensor saved = task_losses(test, mean_models(loss, members, r.counts)) -
                         task_losses(test, loss.refit(found.pulls, r.counts));
    r.counts.add(loss.counts());
    return saved;
  };
  const Tensor strata = (rows.task * rows.classes + rows.labels).index_select(0, held);
  return gain_on_unseen_rows(strata, rows.tasks * rows.classes, seed, gains);
}

void check_tasks(const InteractTableData& data) {
  if (data.classes < 2) throw std::invalid_argument("labels of one class leave nothing to learn");
  if (data.tasks < 2) throw std::invalid_argument("one task has nothing to interact with");
  for (const auto& [values, bound, what] :
       {std::tuple{&data.train.labels, data.classes, "label"}, std::tuple{&data.task, data.tasks, "task"},
        std::tuple{&data.valid.labels, data.classes, "validation label"},
        std::tuple{&data.valid_task, data.tasks, "task of a validation row"}}) {
    if (!values->defined() || values->numel() == 0) continue;
    if (values->min().item<int64_t>() < 0 || values->max().item<int64_t>() >= bound) {
      throw std::invalid_argument(fmt::format("a {} is outside 0 .. {}", what, bound - 1));
    }
  }
}

// Into folds, with tasks and classes in proportion.
void deal(TaskRows& rows, Random& random) {
  rows.fold =
      stratified_folds(rows.task * rows.classes + rows.labels, rows.tasks * rows.classes, rows.folds, random);
}

TaskRows task_rows_of(const InteractTableData& data, const InteractTableOptions& options,
                      const TableScale& scale) {
  TaskRows rows{.scaled = scale.scaled(data.train.features),
                .labels = data.train.labels,
                .task = data.task,
                .fold = {},
                .tasks = data.tasks,
                .classes = data.classes};
  const int64_t count = rows.size();
  if (data.valid.size() > 0) {
    rows.scaled = at::cat({rows.scaled, scale.scaled(data.valid.features)});
    rows.labels = at::cat({rows.labels, data.valid.labels});
    rows.task = at::cat({rows.task, data.valid_task});
    rows.folds = 1;
    rows.fold = at::cat({at::full({count}, -1, at::kLong), at::zeros({rows.size() - count}, at::kLong)});
    return rows;
  }
  Random random(named_seed(options.seed, "folds"));
  rows.folds = options.folds;
  deal(rows, random);
  return rows;
}

// Rows of a small table, dealt into other folds.
std::vector<TaskRows> more_deals(const TaskRows& rows, const InteractTableOptions& options) {
  std::vector<TaskRows> deals;
  if (rows.size() >= few_rows) return deals;
  Random random(named_seed(options.seed, "more folds"));
  for (int64_t k = 1; k < deals_of_few_rows; ++k) deal(deals.emplace_back(rows), random);
  return deals;
}

}  // namespace

void InteractTableOptions::validate(int64_t rows) const {
  if (folds < 2 || folds > rows) {
    throw std::invalid_argument(
        fmt::format("folds = {}: must be 2 to {}, the number of training rows", folds, rows));
  }
}

InteractTableResult interact_table(const InteractTableData& data, const InteractTableOptions& options,
                                   const TableHooks& hooks) {
  check_tasks(data);
  const bool has_valid = data.valid.size() > 0;
  if (!has_valid) options.validate(data.train.size());
  const TableScale scale({data.train.features}, options.standardize);
  const TaskRows rows = task_rows_of(data, options, scale);
  std::vector<HeldOutTasks> dealt{HeldOutTasks(rows)};
  if (!has_valid) {
    for (const TaskRows& again : more_deals(rows, options)) dealt.emplace_back(again);
  }
  HeldOutTasks& loss = dealt.front();

  InteractTableResult r;
  // Models with shares, by their held-out scores in every deal and their fits to all rows.
  const auto finish = [&](const Pulls& shown, const std::vector<std::pair<double, Pulls>>& parts,
                          const Tensor& models) {
    TaskTable table;
    table.coupling = shown.coupling;
    table.regularizer = shown.regularizer;
    std::vector<Tensor> weights;
    for (int64_t t = 0; t < data.tasks; ++t) weights.push_back(scale.in_users_units(models[t]));
    table.weights = at::stack(weights);
    const auto deals = static_cast<double>(dealt.size());
    for (HeldOutTasks& one : dealt) {
      Tensor scores = at::zeros_like(one.targets());
      for (const auto& [share, pulls] : parts) {
        (void)one(pulls);
        scores += share * one.scores();
      }
      const Tensor right = scores.argmax(1).eq(one.targets().argmax(1)).to(at::kDouble);
      table.held_out_loss += cross_entropy_of(scores, one.targets()).mean().item<double>() / deals;
      table.held_out_accuracy += 100 * right.mean().item<double>() / deals;
    }
    return table;
  };
  const auto finish_one = [&](const Pulls& pulls) {
    (void)loss(pulls);
    return finish(pulls, {{1, pulls}}, loss.refit(pulls, r.counts));
  };
  const CommonFamily family(dealt, hooks);
  r.independent = finish_one(family.best_alone().common.pulls(data.tasks));
  r.pooled = finish_one(family.best_pooled().common.pulls(data.tasks));

  const std::vector<Member> likely = family.likely(options.seed);
  r.averaged = static_cast<int64_t>(likely.size());
  std::vector<std::pair<double, Pulls>> parts;
  for (const Member& member : likely) parts.emplace_back(member.share, member.common.pulls(data.tasks));
  r.learned = finish(mean_pull(likely).pulls(data.tasks), parts, mean_models(loss, likely, r.counts));
  if (data.tasks > 2) {
    r.searched_pairs = true;
    CommonPull common = family.best().common;
    common.pull = std::max(common.pull, common.rho * std::exp(weakest_pull));
    const Gain gain = unseen_gain(rows, likely, common, options.seed, hooks, r);
    r.gain = gain.mean;
    r.gain_error = gain.error;
    r.per_pair = gain.clear();
    if (r.per_pair) {
      r.learned = finish_one(search_pairs(loss, common, hooks, r.outer_gradients).pulls);
      r.averaged = 0;
    }
  }
  for (const HeldOutTasks& one : dealt) r.counts.add(one.counts());
  return r;
}

bool is_small_enough_for_newton(int64_t rows, int64_t tasks, int64_t columns, int64_t classes,
                                int64_t folds) {
  const int64_t size = std::max<int64_t>((columns + 1) * (classes - 1), 1);
  const auto fits = [](int64_t count, int64_t numbers) {
    return count <= largest_table / std::max<int64_t>(numbers, 1);
  };
  return fits(size, size) && fits(tasks, tasks) && fits(folds, size * size) &&
         fits(tasks, size * size * folds) && fits(folds, classes) && fits(rows, columns + 1) &&
         fits(rows, folds * classes) && fits(rows, most_models);
}

}  // namespace bilevel
