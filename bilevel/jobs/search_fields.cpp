// The field table of `search`, and how what was given falls together with the published defaults, which
// depend on the space and the method.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/batch_norm_choice.h"
#include "bilevel/jobs/image_choice.h"
#include "bilevel/jobs/search.h"
#include "bilevel/jobs/search_setup.h"
#include "bilevel/jobs/search_size.h"
#include "bilevel/jobs/unread.h"
#include "bilevel/nas/guards/guard.h"

namespace bilevel {
namespace {

using SearchJob = SearchJobOptions;

template <typename Rows>
std::vector<std::string> names_of(const Rows& rows, const std::string& besides) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.name);
  names.push_back(besides);
  return names;
}

std::string guard_strengths() {
  std::vector<std::string> each;
  for (const nas::GuardKind& kind : nas::guard_kinds()) {
    const std::string less =
        kind.travel > 0
            ? fmt::format(", proportionally less if alpha's rate times its steps is below {:g}", kind.travel)
            : "";
    each.push_back(fmt::format("{}: {} ({:g}{})", kind.name, kind.quantity, kind.strength, less));
  }
  return fmt::format("{}; 0 = as without a guard", fmt::join(each, ", "));
}

std::string warmups() {
  std::vector<std::string> each;
  for (const nas::GuardKind& kind : nas::guard_kinds()) {
    if (kind.warmup > 0) each.push_back(fmt::format("{} with {}", kind.warmup, kind.name));
  }
  return fmt::format("{}, but at most a tenth of the epochs; otherwise 0", fmt::join(each, ", "));
}

void add_space_fields(Fields<SearchJob>& f) {
  f.heading("space and supernet");
  f.add(
       "space", [](auto& o) -> auto& { return o.space; }, "search space")
      .one_of(nas::space_names())
      .first();
  f.add(
       "size", [](auto& o) -> auto& { return o.size; },
       "size of the search: published, or small for a CPU (minutes in nasbench201): 4 channels, images of 16 "
       "x 16, "
       "10 epochs, no eigenvalue, where these are not given")
      .one_of(search_sizes())
      .first();
  f.add(
      "operations", [](auto& o) -> auto& { return o.operations; },
      "use only these operations of the space, separated by commas");
  f.add(
       "channels", [](auto& o) -> auto& { return o.network.channels; }, "channels of the first stage")
      .in(at_least(0, bounds::width))
      .first();
  f.add(
       "cells", [](auto& o) -> auto& { return o.network.cells; },
       "number of cells: for each stage in nasbench201 (5), in total in the others (nasbench1shot1 9, darts "
       "8)")
      .in(at_least(0, bounds::depth))
      .by_rule()
      .first();
}

void add_image_fields(Fields<SearchJob>& f) {
  f.include(
      [](SearchJob & o) -> auto& { return o.data; }, image_fields());
  f.include(
      [](SearchJob & o) -> auto& { return o.augment; }, augment_fields());
  f.heading("split");
  f.add(
       "split", [](auto& o) -> auto& { return o.split.file; },
       "file that lists the training and validation images by position, as NAS-Bench-201's does")
      .is(FieldKind::place);
  f.add(
       "train_size", [](auto& o) -> auto& { return o.split.train_size; },
       "number of images to train the weights on, and as many for alpha; 0 = half of the training set for "
       "each")
      .in(at_least(0, bounds::examples))
      .by_rule();
}

// The settings' defaults depend on the space and the method: by_rule().
void add_method_fields(Fields<SearchJob>& f) {
  const char* heading = "method; defaults follow the papers for the space";
  f.heading(heading);
  f.add(
       "method", [](auto& o) -> auto& { return o.search.method; },
       "what moves alpha or finds the cell; auto: one of the first three, chosen by diagnosing the first "
       "batch")
      .one_of(names_of(nas::search_methods(), "auto"))
      .first();
  f.include(
      [](SearchJob & o) -> auto& { return o.automatic; }, AutomaticOptions::fields());
  f.row("accuracy").group = heading;
  f.add(
       "epochs", [](auto& o) -> auto& { return o.search.epochs; }, "passes over the training images")
      .in(at_least(0, bounds::endless))
      .by_rule()
      .first();
  f.add(
       "warmup_epochs", [](auto& o) -> auto& { return o.search.warmup_epochs; },
       "epochs at the start in which alpha is held fixed; default: " + warmups())
      .in(at_least(0, bounds::endless))
      .by_rule();
  f.add(
       "batch", [](auto& o) -> auto& { return o.search.batch; }, "images in a batch")
      .in(at_least(1, bounds::examples))
      .by_rule()
      .first();
  f.add(
       "alpha_steps", [](auto& o) -> auto& { return o.search.alpha_steps; },
       "alpha steps in an epoch; default: one pass over the training images")
      .in(at_least(0, bounds::endless))
      .by_rule();
  f.add(
       "terms", [](auto& o) -> auto& { return o.search.hypergradient.terms; },
       "K: Hessian products in idarts, steps in cg")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "truncate", [](auto& o) -> auto& { return o.search.hypergradient.truncate; },
       "truncated: number of steps to back-propagate through")
      .in(at_least(0, bounds::within_step))
      .by_rule();
  f.add(
       "curvature", [](auto& o) -> auto& { return o.search.hypergradient.curvature.kind; },
       "curvature matrix: hessian (idarts) or gauss-newton (cg)")
      .one_of({"hessian", "gauss-newton"})
      .by_rule();
  f.add(
       "damping", [](auto& o) -> auto& { return o.search.hypergradient.curvature.damping; },
       "damping rho in H + rho I")
      .in(at_least(0))
      .by_rule();
  f.add(
       "cross", [](auto& o) -> auto& { return o.cross; },
       "how the cross product is computed: difference (as in the papers) or exact")
      .one_of({"difference", "exact"})
      .by_rule();
  f.add(
       "linear_rate", [](auto& o) -> auto& { return o.linear_rate; },
       "linear rate of the Neumann series: a number, or auto = 1 / largest curvature; default: the inner "
       "rate")
      .by_rule();
  f.add(
       "samples", [](auto& o) -> auto& { return o.search.samples; },
       "number of cells that the random searches try")
      .in(at_least(1, bounds::endless))
      .by_rule();
  f.add(
       "temperature", [](auto& o) -> auto& { return o.search.temperature; }, "gdas: temperature at the start")
      .in(above(0))
      .by_rule();
  f.add(
       "final_temperature", [](auto& o) -> auto& { return o.search.final_temperature; },
       "gdas: temperature at the end")
      .in(above(0))
      .by_rule();
}

void add_step_fields(Fields<SearchJob>& f) {
  f.heading("weights");
  f.add(
       "inner_steps", [](auto& o) -> auto& { return o.search.inner.steps; },
       "T: weight steps for each alpha step")
      .in(at_least(1, bounds::within_step))
      .by_rule();
  f.add(
       "inner_rate", [](auto& o) -> auto& { return o.search.inner.rate; }, "inner rate at the start")
      .in(above(0))
      .by_rule();
  f.add(
       "final_rate", [](auto& o) -> auto& { return o.search.final_rate; },
       "inner rate at the end of the cosine schedule")
      .in(at_least(0))
      .by_rule();
  f.add(
       "inner_optimizer", [](auto& o) -> auto& { return o.search.inner.optimizer; },
       "optimiser of the weights: gd, heavy-ball, nesterov or adam")
      .by_rule();
  f.add(
       "momentum", [](auto& o) -> auto& { return o.search.inner.momentum; },
       "momentum of heavy-ball and nesterov")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "weight_decay", [](auto& o) -> auto& { return o.search.weight_decay; },
       "weight decay, as part of the training loss")
      .in(at_least(0))
      .by_rule();
  f.add(
       "inner_clip", [](auto& o) -> auto& { return o.search.inner.clip_norm; },
       "clip gradients to this norm; 0 = no clipping")
      .in(at_least(0))
      .by_rule();
  f.heading("alpha (Adam)");
  f.add(
       "alpha_rate", [](auto& o) -> auto& { return o.search.outer.rate; }, "rate of the alpha steps")
      .in(above(0))
      .by_rule();
  f.add(
      "alpha_schedule", [](auto& o) -> auto& { return o.search.outer.schedule; },
      fmt::format("how the alpha rate falls during the search: {}; power:0.75 is square-summable, as theorem "
                  "2 of iDARTS requires",
                  schedule_words));
  f.add(
       "alpha_beta1", [](auto& o) -> auto& { return o.search.outer.beta1; },
       "decay of Adam's running mean of the gradients")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "alpha_beta2", [](auto& o) -> auto& { return o.search.outer.beta2; },
       "decay of Adam's running mean of the squared gradients")
      .in(from_0_below_1())
      .by_rule();
  f.add(
       "alpha_decay", [](auto& o) -> auto& { return o.search.outer.preparation.weight_decay; },
       "weight decay of alpha")
      .in(at_least(0))
      .by_rule();
}

void add_collapse_fields(Fields<SearchJob>& f) {
  f.heading("against collapse");
  f.add(
       "guard", [](auto& o) -> auto& { return o.search.guard.name; },
       fmt::format("keeps alpha from collapsing during the search; default: {}, if the method moves alpha",
                   nas::default_guard))
      .one_of(names_of(nas::guard_kinds(), "none"))
      .by_rule();
  f.add(
       "guard_strength", [](auto& o) -> auto& { return o.search.guard.strength; }, guard_strengths())
      .in(at_least(0, 1e6))
      .by_rule();
  f.add(
       "stop", [](auto& o) -> auto& { return o.search.stop; },
       "end the search before a collapse and return the genotype from before it")
      .one_of({"eigenvalue", "skips", "none"})
      .by_rule();
  f.add(
       "stop_window", [](auto& o) -> auto& { return o.search.stop_window; },
       "number of epochs over which the eigenvalue is averaged and compared")
      .in(at_least(1, bounds::endless))
      .by_rule();
  f.add(
       "stop_ratio", [](auto& o) -> auto& { return o.search.stop_ratio; },
       "end the search when the earlier average divided by the present one falls below this")
      .in(between_0_and_1())
      .by_rule();
  f.add(
       "most_skips", [](auto& o) -> auto& { return o.search.most_skips; },
       "largest number of skip connections in a normal cell")
      .in(at_least(0, bounds::endless))
      .by_rule();
  f.add(
       "select", [](auto& o) -> auto& { return o.search.select; },
       "how the genotype is chosen: argmax (largest alpha) or perturbation (the operation that the supernet "
       "misses most)")
      .one_of({"argmax", "perturbation"})
      .by_rule();
  f.add(
       "tune_epochs", [](auto& o) -> auto& { return o.search.tune_epochs; },
       "epochs of weight training between two choices of perturbation")
      .in(at_least(0, bounds::endless))
      .by_rule();
  f.add(
       "eigenvalue_products", [](auto& o) -> auto& { return o.search.eigenvalue_products; },
       "Lanczos products for the dominant eigenvalue in alpha, every epoch; 0 = not measured")
      .in(at_least(0, bounds::within_step))
      .by_rule();
}

void add_measure_fields(Fields<SearchJob>& f) {
  f.heading("measurements and seed");
  f.add(
       "benchmark", [](auto& o) -> auto& { return o.benchmark; },
       "table of trained cells (NAS-Bench-201 or -101) that gives the true accuracies")
      .is(FieldKind::place);
  f.add(
       "baselines", [](auto& o) -> auto& { return o.baselines; },
       "after the search, train this many random cells, the all-3x3 cell and the found cell, each for as "
       "many epochs as the search")
      .in(at_least(0, 1000))
      .first();
  f.add(
       "score_images", [](auto& o) -> auto& { return o.search.score_images; },
       "number of validation images to score the supernet on after each epoch; 0 = all")
      .in(at_least(0, bounds::examples))
      .by_rule();
  f.add(
       "profile", [](auto& o) -> auto& { return o.profile; },
       "show where the time went, by oracle call and by operation")
      .is(FieldKind::process);
  f.add(
       "seed", [](auto& o) -> auto& { return o.search.seed; }, "random seed for all sampling")
      .by_rule()
      .first();
}

}  // namespace

SearchJobOptions::SearchJobOptions() {
  automatic.accuracy = 0.1;
  compute.dtype = "float";
}

const Fields<SearchJobOptions>& SearchJobOptions::fields() {
  static const Fields<SearchJob> table = [] {
    Fields<SearchJob> f;
    add_space_fields(f);
    add_image_fields(f);
    add_method_fields(f);
    add_step_fields(f);
    add_collapse_fields(f);
    add_measure_fields(f);
    add_batch_norm_field(f);
    f.include(
        [](SearchJob & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

// ---- what was given, and defaults ----

namespace {

void refuse_ignored_settings(SearchJob& o) {
  const OptionsView view(o);
  std::vector<ChoiceReads> methods;
  for (const nas::SearchMethod& method : nas::search_methods())
    methods.push_back({method.name, method.reads});
  refuse_unread(view, "method", o.search.method, methods);
  const auto needs = [&](const char* field, const std::string& chosen, const std::string& value,
                         const std::vector<std::string>& users) {
    if (!view.is_given(view.at(field)) || std::find(users.begin(), users.end(), value) != users.end()) return;
    throw OptionError(
        no_effect(named(field, view.words(view.at(field)).front()), named(chosen, value), users));
  };
  const nas::SearchOptions& s = o.search;
  needs("momentum", "inner_optimizer", s.inner.optimizer, {"heavy-ball", "nesterov"});
  if (!s.guard.on()) needs("guard_strength", "guard", "none", {});
  needs("stop_window", "stop", s.stop, {"eigenvalue"});
  needs("stop_ratio", "stop", s.stop, {"eigenvalue"});
  needs("most_skips", "stop", s.stop, {"skips"});
  needs("tune_epochs", "select", s.select, {"perturbation"});
}

void take_linear_rate(const std::string& text, nas::SearchOptions& search) {
  if (text.empty()) return;
  search.linear_rate_auto = text == "auto";
  if (search.linear_rate_auto) return;
  try {
    read_word(text, search.hypergradient.linear_rate);
    if (!(search.hypergradient.linear_rate > 0)) throw std::invalid_argument("");
  } catch (const std::invalid_argument&) {
    throw OptionError(fmt::format("{}: give a number above 0, or auto", named("linear_rate", text)));
  }
}

}  // namespace

void complete_search(SearchJobOptions& o, const nas::SearchSpace& space, bool chosen) {
  SearchJobOptions given = o;
  nas::SearchOptions& s = o.search;
  s = nas::default_search_options(space, s.method);
  OptionsView(o).take_given(OptionsView(given));
  take_size_of_search(o);
  if (o.given(s.inner.steps) && s.method == "truncated" && !o.given(s.hypergradient.truncate)) {
    s.hypergradient.truncate = s.inner.steps;
  }
  if (o.given(s.guard.name) && !o.given(s.guard.strength)) {
    s.guard.strength = s.guard.on() ? nas::find_guard(s.guard.name).strength : 0;
  }
  if (!o.given(s.warmup_epochs)) s.warmup_epochs = nas::default_warmup_epochs(s);
  if (!o.given(s.final_rate)) s.final_rate = std::min(s.final_rate, s.inner.rate);
  if (o.given(o.cross)) s.hypergradient.curvature.difference_cross = o.cross == "difference";
  take_linear_rate(o.linear_rate, s);
  s.validate();
  if (!chosen) refuse_ignored_settings(o);  // else what was given was given to the diagnosis
  // As it is in use, for config.json.
  o.cross = s.hypergradient.curvature.difference_cross ? "difference" : "exact";
}

}  // namespace bilevel
