#include "cli/search_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/nas/guards/guard.h"
#include "cli/image_options.h"

namespace bilevel::cli {
namespace {

// An option whose default depends on the space and the method: it counts only where it was given.
template <typename Field>
CLI::Option* add_setting(CLI::App& group, SearchFlags& o, const std::string& name, Field field,
                         const std::string& help) {
  o.settings.emplace_back(name, [&o, field](nas::SearchOptions& target) { field(target) = field(o.given); });
  return group.add_option(name, field(o.given), help);
}

std::string guard_names() {
  std::vector<std::string> names;
  for (const nas::GuardKind& kind : nas::guard_kinds()) names.push_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string guard_strengths() {
  std::vector<std::string> each;
  for (const nas::GuardKind& kind : nas::guard_kinds()) {
    each.push_back(fmt::format("{}: {} ({:g}{})", kind.name, kind.quantity, kind.strength,
                               kind.travel > 0
                                   ? fmt::format(", in proportion less where alpha's rate times its "
                                                 "steps is below {:g}",
                                                 kind.travel)
                                   : ""));
  }
  return fmt::format("{}; 0 = as without a guard", fmt::join(each, ", "));
}

}  // namespace

void add_search_options(CLI::App& command, SearchFlags& o) {
  auto* space = command.add_option_group("space and supernet");
  space->add_option("--space", o.space, "nasbench201, nasbench1shot1-1, -2, -3 or darts")
      ->capture_default_str();
  space->add_option("--operations", o.operations, "only these of the space's operations, with commas")
      ->delimiter(',');
  space->add_option("--channels", o.network.channels, "of the first stage")->capture_default_str();
  space->add_option("--cells", o.network.cells,
                    "nasbench201: a stage (5); others: in all (9 in nasbench1shot1, 8 in darts)");
  add_image_options(command, o.data, o.augment);
  auto* split = command.add_option_group("split");
  split->add_option("--split", o.split.file,
                    "file of positions for training and validation, as NAS-Bench-201's");
  split->add_option("--train-size", o.split.train_size,
                    "images for the weights and as many for alpha; 0 = half of the training set each");

  using S = nas::SearchOptions;
  auto* method = command.add_option_group("method; defaults are the papers' for the space");
  method
      ->add_option(
          "--method", o.method,
          "idarts, darts, darts-first-order, truncated, cg, gdas, random-sharing, random; auto: one of "
          "the first three, by a look at the first batch")
      ->capture_default_str();
  add_auto_options(*method, o.automatic);
  add_setting(
      *method, o, "--epochs", [](S & s) -> auto& { return s.epochs; }, "passes over the training images");
  add_setting(
      *method, o, "--warmup-epochs", [](S & s) -> auto& { return s.warmup_epochs; },
      "first epochs in which alpha rests");
  add_setting(
      *method, o, "--batch", [](S & s) -> auto& { return s.batch; }, "images of a batch");
  add_setting(
      *method, o, "--alpha-steps", [](S & s) -> auto& { return s.alpha_steps; },
      "steps of alpha in an epoch; left out: one pass over the training images");
  add_setting(
      *method, o, "--terms", [](S & s) -> auto& { return s.hypergradient.terms; },
      "K: Hessian products of idarts, steps of cg");
  add_setting(
      *method, o, "--truncate", [](S & s) -> auto& { return s.hypergradient.truncate; },
      "steps that truncated goes back through");
  add_setting(
      *method, o, "--curvature", [](S & s) -> auto& { return s.hypergradient.curvature.kind; },
      "hessian (idarts) or gauss-newton (cg)")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}));
  add_setting(
      *method, o, "--damping", [](S & s) -> auto& { return s.hypergradient.curvature.damping; },
      "rho in H + rho I");
  method->add_option("--mixed", o.mixed, "mixed product: difference (the papers') or exact")
      ->check(CLI::IsMember({"difference", "exact"}));
  method->add_option(
      "--series-rate", o.series_rate,
      "of the Neumann series: a number, or auto = 1 / largest curvature; left out: the weights' rate");
  add_setting(
      *method, o, "--samples", [](S & s) -> auto& { return s.samples; }, "cells that random searches try");
  add_setting(
      *method, o, "--temperature", [](S & s) -> auto& { return s.temperature; }, "of gdas at the start");
  add_setting(
      *method, o, "--final-temperature", [](S & s) -> auto& { return s.final_temperature; },
      "and at the end");

  auto* weights = command.add_option_group("weights");
  add_setting(
      *weights, o, "--inner-steps", [](S & s) -> auto& { return s.inner.steps; },
      "T: weight steps a step of alpha");
  add_setting(
      *weights, o, "--inner-rate", [](S & s) -> auto& { return s.inner.rate; }, "at the start");
  add_setting(
      *weights, o, "--final-rate", [](S & s) -> auto& { return s.final_rate; }, "at the end of the cosine");
  add_setting(
      *weights, o, "--inner-optimizer", [](S & s) -> auto& { return s.inner.optimizer; },
      "gd, heavy-ball, nesterov or adam");
  add_setting(
      *weights, o, "--momentum", [](S & s) -> auto& { return s.inner.momentum; },
      "of heavy-ball and nesterov");
  add_setting(
      *weights, o, "--weight-decay", [](S & s) -> auto& { return s.weight_decay; },
      "part of the training loss");
  add_setting(
      *weights, o, "--inner-clip", [](S & s) -> auto& { return s.inner.clip_norm; },
      "largest norm of a gradient; 0 = no clipping");
  auto* alpha = command.add_option_group("alpha (Adam)");
  add_setting(
      *alpha, o, "--alpha-rate", [](S & s) -> auto& { return s.outer.rate; }, "");
  add_setting(
      *alpha, o, "--alpha-beta1", [](S & s) -> auto& { return s.outer.beta1; }, "");
  add_setting(
      *alpha, o, "--alpha-beta2", [](S & s) -> auto& { return s.outer.beta2; }, "");
  add_setting(
      *alpha, o, "--alpha-decay", [](S & s) -> auto& { return s.outer.preparation.weight_decay; },
      "weight decay of alpha");

  auto* collapse = command.add_option_group("against collapse");
  add_setting(
      *collapse, o, "--guard", [](S & s) -> auto& { return s.guard.name; },
      fmt::format("{} or none: keeps alpha from collapsing along the search; left out: {}, where the method "
                  "moves alpha",
                  guard_names(), nas::default_guard));
  add_setting(
      *collapse, o, "--guard-strength", [](S & s) -> auto& { return s.guard.strength; }, guard_strengths());
  add_setting(
      *collapse, o, "--stop", [](S & s) -> auto& { return s.stop; },
      "eigenvalue, skips or none: end before a collapse and return the genotype from before it");
  add_setting(
      *collapse, o, "--stop-window", [](S & s) -> auto& { return s.stop_window; },
      "epochs that the eigenvalue is averaged over and compared across");
  add_setting(
      *collapse, o, "--stop-ratio", [](S & s) -> auto& { return s.stop_ratio; },
      "earlier average over the present one that ends the search");
  add_setting(
      *collapse, o, "--most-skips", [](S & s) -> auto& { return s.most_skips; },
      "skip connections that a normal cell may have");
  add_setting(
      *collapse, o, "--select", [](S & s) -> auto& { return s.select; },
      "argmax (largest alpha) or perturbation (what the supernet misses most)");
  add_setting(
      *collapse, o, "--tune-epochs", [](S & s) -> auto& { return s.tune_epochs; },
      "of the weights between two choices of perturbation");
  add_setting(
      *collapse, o, "--eigenvalue-products", [](S & s) -> auto& { return s.eigenvalue_products; },
      "of Lanczos for the dominant eigenvalue in alpha, every epoch; 0 = not measured");

  auto* run = command.add_option_group("measures and seed");
  run->add_option("--benchmark", o.benchmark,
                  "table of trained cells (NAS-Bench-201 or -101) for the true accuracies");
  add_setting(
      *run, o, "--score-images", [](S & s) -> auto& { return s.score_images; },
      "validation images that measure the supernet after an epoch; 0 = all");
  add_setting(
      *run, o, "--seed", [](S & s) -> auto& { return s.seed; }, "of everything that is drawn");
  add_run_options(command, o.run);
  add_common_options(command, o.common);
}

namespace {

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// An option that would be ignored is an error: its user believes that it did something.
void refuse_ignored(const CLI::App& command, const SearchFlags& o, const nas::SearchOptions& search) {
  if (!o.automatic.choice.empty()) return;  // what was given was given to the diagnosis
  const std::vector<std::string> implicit{"idarts", "cg"};
  const std::vector<std::string> moving{"idarts", "darts", "darts-first-order", "truncated", "cg", "gdas"};
  const std::vector<std::string> supernet{"idarts", "darts", "darts-first-order", "truncated",
                                          "cg",     "gdas",  "random-sharing"};
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> readers = {
      {{"--terms", "--curvature", "--damping"}, implicit},
      {{"--truncate"}, {"truncated"}},
      {{"--series-rate"}, {"idarts"}},
      {{"--mixed"}, {"idarts", "darts", "truncated", "cg"}},
      {{"--samples"}, {"random-sharing", "random"}},
      {{"--temperature", "--final-temperature"}, {"gdas"}},
      {{"--inner-steps"}, {"idarts", "truncated", "cg", "random-sharing"}},
      {{"--alpha-steps", "--final-rate", "--inner-optimizer", "--momentum", "--inner-clip", "--score-images"},
       supernet},
      {{"--warmup-epochs", "--alpha-rate", "--alpha-beta1", "--alpha-beta2", "--alpha-decay", "--select"},
       moving},
  };
  for (const auto& [options, methods] : readers) {
    for (const std::string& option : options) {
      if (command.count(option) > 0 && !is_one_of(search.method, methods)) {
        throw std::invalid_argument(fmt::format(
            "{} {} changes nothing for --method {}: it is of {}; leave it out", option,
            command.get_option(option)->results().front(), search.method, fmt::join(methods, ", ")));
      }
    }
  }
  const auto needs = [&](const std::string& option, const char* other, bool there) {
    if (command.count(option) > 0 && !there) {
      throw std::invalid_argument(
          fmt::format("{} {} changes nothing without {}; leave it out, or give that too", option,
                      command.get_option(option)->results().front(), other));
    }
  };
  needs("--momentum", "--inner-optimizer heavy-ball or nesterov",
        is_one_of(search.inner.optimizer, {"heavy-ball", "nesterov"}));
  needs("--guard-strength", "a --guard", search.guard.on());
  needs("--stop-window", "--stop eigenvalue", search.stop == "eigenvalue");
  needs("--stop-ratio", "--stop eigenvalue", search.stop == "eigenvalue");
  needs("--most-skips", "--stop skips", search.stop == "skips");
  needs("--tune-epochs", "--select perturbation", search.select == "perturbation");
}

}  // namespace

nas::SearchOptions search_options(const CLI::App& command, const SearchFlags& o,
                                  const nas::SearchSpace& space) {
  nas::SearchOptions search = nas::default_search_options(space, o.method);
  for (const auto& [name, take_over] : o.settings) {
    if (command.count(name) > 0) take_over(search);
  }
  if (command.count("--inner-steps") > 0 && o.method == "truncated" && command.count("--truncate") == 0) {
    search.hypergradient.truncate = search.inner.steps;
  }
  if (command.count("--guard") > 0 && command.count("--guard-strength") == 0) {
    search.guard.strength = search.guard.on() ? nas::find_guard(search.guard.name).strength : 0;
  }
  if (command.count("--final-rate") == 0) search.final_rate = std::min(search.final_rate, search.inner.rate);
  if (!o.mixed.empty()) search.hypergradient.curvature.difference_mixed = o.mixed == "difference";
  if (o.series_rate == "auto") {
    search.series_rate_auto = true;
  } else if (!o.series_rate.empty()) {
    try {
      size_t read = 0;
      search.hypergradient.series_rate = std::stod(o.series_rate, &read);
      if (read != o.series_rate.size() || !(search.hypergradient.series_rate > 0))
        throw std::invalid_argument("");
    } catch (const std::exception&) {
      throw std::invalid_argument(
          fmt::format("--series-rate {}: give a number above 0, or auto", o.series_rate));
    }
  }
  search.validate();
  refuse_ignored(command, o, search);
  return search;
}

}  // namespace bilevel::cli
