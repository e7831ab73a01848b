#include "bilevel/nas/search_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "bilevel/core/require.h"
#include "bilevel/fields/option_text.h"

namespace bilevel::nas {

namespace {

using Names = std::vector<std::string>;

Names together(const std::vector<Names>& parts) {
  Names all;
  for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// What the loop over a supernet reads, and what the steps of alpha do.
const Names supernet{"alpha_steps", "final_rate", "inner_optimizer",
                     "momentum",    "inner_clip", "score_images"};
const Names moving{"warmup_epochs", "alpha_rate",  "alpha_schedule", "alpha_beta1",
                   "alpha_beta2",   "alpha_decay", "select"};
const Names implicit{"terms", "curvature", "damping", "cross", "inner_steps"};

}  // namespace

const std::vector<SearchMethod>& search_methods() {
  static const std::vector<SearchMethod> methods = {
      {"idarts", "T weight steps, then alpha by a Neumann series with K Hessian products (Zhang et al. 2021)",
       true, together({implicit, {"linear_rate"}, supernet, moving})},
      {"darts", "second order: one virtual weight step (Liu et al. 2019)", true,
       together({{"cross"}, supernet, moving})},
      {"darts-first-order", "alpha along the direct gradient alone", true, together({supernet, moving})},
      {"truncated", "T weight steps, reverse mode over the last of them (Shaban et al. 2019)", true,
       together({{"truncate", "cross", "inner_steps"}, supernet, moving})},
      {"cg", "T weight steps, the inverse curvature by conjugate gradients", true,
       together({implicit, supernet, moving})},
      {"gdas", "one operation an edge, drawn by Gumbel softmax (Dong and Yang 2019)", true,
       together({{"temperature", "final_temperature"}, supernet, moving})},
      {"random-sharing",
       "weights trained on random cells, which then rank random cells (Li and Talwalkar 2019)", false,
       together({{"samples", "inner_steps"}, supernet})},
      {"random",
       "random cells, each trained by itself for a while; the best on validation images",
       false,
       {"samples"}},
  };
  return methods;
}

const SearchMethod& find_search_method(const std::string& name) {
  std::vector<std::string> names;
  for (const SearchMethod& method : search_methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  refuse_unknown("method", name, names);
}

void SearchOptions::validate() const {
  (void)find_search_method(method);
  require_at_least("epochs", epochs, 0);
  require_at_least("warmup_epochs", warmup_epochs, 0);
  require_at_least("batch", batch, 1);
  require_at_least("alpha_steps", alpha_steps, 0);
  require_at_least("inner_steps", inner.steps, 1);
  require(final_rate >= 0 && final_rate <= inner.rate, "final_rate", final_rate,
          "between 0 and the rate it begins at");
  require_nonnegative("weight_decay", weight_decay);
  require(temperature > 0 && final_temperature > 0, "temperature", std::min(temperature, final_temperature),
          "above 0");
  require_at_least("samples", samples, 1);
  require_at_least("score_images", score_images, 0);
  require_at_least("eigenvalue_products", eigenvalue_products, 0);
  require_at_least("stop_window", stop_window, 1);
  require_between_0_and_1("stop_ratio", stop_ratio);
  require_at_least("most_skips", most_skips, 0);
  require_at_least("tune_epochs", tune_epochs, 0);
  if (stop != "none" && stop != "eigenvalue" && stop != "skips") {
    refuse_unknown("stop", stop, {"none", "eigenvalue", "skips"});
  }
  if (stop == "eigenvalue" && eigenvalue_products == 0) {
    throw OptionError(
        fmt::format("{} needs {} above 0", named("stop", "eigenvalue"), named("eigenvalue_products")));
  }
  if (select != "argmax" && select != "perturbation") {
    refuse_unknown("select", select, {"argmax", "perturbation"});
  }
  if (stop != "none" && !find_search_method(method).moves_alpha) {
    throw OptionError(fmt::format("{}: {} has no alpha that could collapse", named("stop", stop), method));
  }
  guard.validate();
  if (guard.on() && !find_search_method(method).moves_alpha) {
    throw OptionError(fmt::format("{}: {} has no alpha that could collapse; leave it out",
                                  named("guard", guard.name), method));
  }
  inner.validate();
  hypergradient.curvature.validate();
}

SearchOptions default_search_options(const SearchSpace& space, const std::string& method) {
  (void)find_search_method(method);
  SearchOptions o;
  o.method = method;
  o.epochs = 50;
  o.inner.steps = 1;
  o.inner.optimizer = "nesterov";
  o.inner.rate = 0.025;
  o.inner.momentum = 0.9;
  o.inner.clip_norm = 5;
  o.outer.optimizer = "adam";
  o.outer.rate = 3e-4;
  o.outer.beta1 = 0.5;
  o.outer.beta2 = 0.999;
  o.outer.preparation.weight_decay = 1e-3;
  if (find_search_method(method).moves_alpha) o.guard = {default_guard, find_guard(default_guard).strength};
  o.hypergradient.terms = 2;
  o.hypergradient.truncate = 1;
  o.hypergradient.curvature.difference_cross = true;
  const bool unrolled_or_implicit = method == "idarts" || method == "cg" || method == "truncated";
  switch (space.kind) {
    case SpaceKind::nasbench201:
      if (unrolled_or_implicit) {
        o.inner.steps = 4;
        o.inner.rate = 0.01;
        o.epochs = 30;
      }
      if (method == "gdas" || method == "random-sharing") o.epochs = 250;
      break;
    case SpaceKind::nasbench1shot1:
      o.batch = 96;
      o.inner.optimizer = "heavy-ball";
      o.weight_decay = 3e-4;
      if (unrolled_or_implicit) o.inner.steps = 5;
      break;
    case SpaceKind::darts:
      o.inner.optimizer = "heavy-ball";
      o.weight_decay = 3e-4;
      o.most_skips = 1;
      if (unrolled_or_implicit) o.inner.steps = 4;
      break;
  }
  if (method == "truncated") o.hypergradient.truncate = o.inner.steps;
  // A network's Hessian has negative eigenvalues, and conjugate gradients end at the first that they meet.
  if (method == "cg") o.hypergradient.curvature.kind = "gauss-newton";
  if (method == "random") {
    o.samples = 10;
    o.epochs = 3;  // of each cell's training
  }
  return o;
}

int64_t weight_steps(const SearchOptions& options) {
  return options.method.rfind("darts", 0) == 0 || options.method == "gdas" ? 1 : options.inner.steps;
}

int64_t alpha_steps_an_epoch(const SearchOptions& options, int64_t training_images) {
  if (options.alpha_steps > 0) return options.alpha_steps;
  return std::max<int64_t>(1, training_images / (options.batch * weight_steps(options)));
}

Schedule alpha_schedule(const SearchOptions& options, int64_t steps) {
  Schedule schedule = options.outer.schedule;
  schedule.total_steps = std::max<int64_t>(1, steps);
  return schedule;
}

double sum_of_factors(const Schedule& schedule, int64_t steps, int power) {
  if (schedule.kind == ScheduleKind::constant) return static_cast<double>(steps);
  double total = 0;
  for (int64_t first = 0, count = 0; first < steps; first += count) {
    count = std::min(std::max<int64_t>(1, first / 1000), steps - first);
    // The middle of an even block lies between two steps.
    const double below = std::pow(schedule.factor(first + (count - 1) / 2), power),
                 above = std::pow(schedule.factor(first + count / 2), power);
    total += static_cast<double>(count) * (below + above) / 2;
  }
  return total;
}

double default_guard_strength(const SearchOptions& options, int64_t training_images) {
  if (!options.guard.on()) return 0;
  const GuardKind& kind = find_guard(options.guard.name);
  if (kind.travel == 0) return kind.strength;
  const int64_t epochs = std::max<int64_t>(0, options.epochs - options.warmup_epochs);
  const int64_t steps = epochs * alpha_steps_an_epoch(options, training_images);
  const double travel = options.outer.rate * sum_of_factors(alpha_schedule(options, steps), steps);
  return std::stod(fmt::format("{:.2g}", kind.strength * std::min(1.0, travel / kind.travel)));
}

int64_t default_warmup_epochs(const SearchOptions& options) {
  if (!options.guard.on() || options.guard.strength == 0) return 0;
  return std::min(find_guard(options.guard.name).warmup, options.epochs / 10);
}

}  // namespace bilevel::nas
