// iDARTS (Zhang et al., ICML 2021), figures 1, 2 and 4: how T, K and the rates show along a search.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "reproduce/idarts_runs.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

const std::string test_101 = "test_acc", test_201 = "cifar10_test";

// One row an epoch, one column a setting: the regret, or the accuracy where `regret` is false.
Json curves(const std::string& title, const SearchGround& ground, const std::vector<const SearchRuns*>& all,
            const std::string& column, bool regret) {
  Json rows = Json::array();
  int64_t epochs = 0;
  for (const SearchRuns* runs : all) epochs = std::max(epochs, runs->epochs());
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    Json row = {{"epoch", epoch}};
    for (const SearchRuns* runs : all) {
      const Statistic s = regret ? runs->regret_at(column, epoch) : runs->accuracy_at(column, epoch);
      row[runs->setting.label] = ground.benchmark ? s.text() : "no table";
    }
    rows.push_back(std::move(row));
  }
  return table(title, std::move(rows));
}

std::vector<const SearchRuns*> pointers(const std::vector<SearchRuns>& all) {
  std::vector<const SearchRuns*> result;
  std::transform(all.begin(), all.end(), std::back_inserter(result), [](const SearchRuns& r) { return &r; });
  return result;
}

// "T=1 2.31, T=2 2.10": the mean regret of each up to an epoch.
std::string regrets(const std::vector<const SearchRuns*>& all, int64_t last_epoch) {
  std::string text;
  for (const SearchRuns* runs : all) {
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", runs->setting.label,
                        runs->mean_regret(test_101, last_epoch));
  }
  return text;
}

Json item_json(Json tables, Json claims, const std::vector<SearchRuns>& all, const SearchGround& ground,
               const std::string& file, const ReproduceOptions& options) {
  save_runs(all, file, options);
  return {{"tables", std::move(tables)},
          {"claims", std::move(claims)},
          {"notes", search_notes(ground, all, options)},
          {"runs", runs_json(all)}};
}

const char* const only_test =
    "The table has test accuracies alone, so that the figure's validation errors are not here: regret is the "
    "table's best test accuracy - that of the cell with the largest weights.";

}  // namespace

Json idarts_figure1(const ReproduceOptions& options) {
  SearchGround ground = search_ground("nasbench1shot1-3", options);
  std::vector<SearchSetting> settings = {search_setting("DARTS", ground, "darts", options)};
  for (const int64_t T : {1, 2, 5}) settings.push_back(idarts_setting(ground, T, 3, options));
  std::vector<SearchRuns> all = run_searches(ground, settings, options);
  Json claims = Json::array();
  if (ground.benchmark) {
    const int64_t epochs = all.front().epochs(), early = std::max<int64_t>(1, epochs / 3);
    const double darts = all.front().mean_regret(test_101, early);
    const bool ahead = std::all_of(all.begin() + 1, all.end(), [&](const SearchRuns& runs) {
      return runs.mean_regret(test_101, early) < darts;
    });
    claims.push_back(
        claim("iDARTS is ahead of DARTS early, whatever T", ahead,
              fmt::format("mean test regret up to epoch {}: {}", early, regrets(pointers(all), early))));
    const double one = all[1].mean_regret(test_101, epochs);
    claims.push_back(
        claim("with one weight step, as DARTS has, it is still ahead along the whole search",
              one < all[0].mean_regret(test_101, epochs),
              fmt::format("mean test regret over all epochs: {}", regrets({&all[0], &all[1]}, epochs))));
    const bool falls = all[1].mean_regret(test_101, early) > all[2].mean_regret(test_101, early) &&
                       all[2].mean_regret(test_101, early) > all[3].mean_regret(test_101, early);
    claims.push_back(claim("more weight steps find good cells sooner", falls,
                           fmt::format("mean test regret up to epoch {}: {}", early,
                                       regrets({&all[1], &all[2], &all[3]}, early))));
  }
  Json result =
      item_json(Json::array({curves("Figure 1: test regret along the search, NAS-Bench-1Shot1 space 3",
                                    ground, pointers(all), test_101, true)}),
                std::move(claims), all, ground, "idarts-figure1.csv", options);
  result["notes"].push_back(only_test);
  result["notes"].push_back(
      "The figure's grid of T is not in the text: 1, 2 and 5 are ours; K = 3 is the paper's.");
  return result;
}

Json idarts_figure4(const ReproduceOptions& options) {
  SearchGround ground = search_ground("nasbench1shot1-3", options);
  std::vector<SearchSetting> settings = {search_setting("DARTS", ground, "darts", options)};
  for (const int64_t T : {1, 5}) {
    for (const int64_t K : {0, 1, 2, 3}) settings.push_back(idarts_setting(ground, T, K, options));
  }
  std::vector<SearchRuns> all = run_searches(ground, settings, options);
  const std::vector<const SearchRuns*> every = pointers(all);
  const std::vector<const SearchRuns*> one(every.begin() + 1, every.begin() + 5);
  const std::vector<const SearchRuns*> five(every.begin() + 5, every.end());
  Json claims = Json::array();
  if (ground.benchmark) {
    const int64_t epochs = all.front().epochs();
    const auto regret = [&](const SearchRuns* runs) { return runs->mean_regret(test_101, epochs); };
    const auto why = [&](const std::vector<const SearchRuns*>& which) {
      return "mean test regret along the search: " + regrets(which, epochs);
    };
    claims.push_back(claim("with T = 1 every K from 1 on is ahead of DARTS",
                           std::all_of(one.begin() + 1, one.end(),
                                       [&](const SearchRuns* r) { return regret(r) < regret(every[0]); }),
                           why({every[0], one[1], one[2], one[3]})));
    claims.push_back(
        claim("T = 5 is better than T = 1 for every K",
              std::equal(five.begin(), five.end(), one.begin(),
                         [&](const SearchRuns* a, const SearchRuns* b) { return regret(a) < regret(b); }),
              why({every.begin() + 1, every.end()})));
    claims.push_back(claim("with T = 5 more products help up to K = 2",
                           regret(five[0]) > regret(five[1]) && regret(five[1]) > regret(five[2]),
                           why({five[0], five[1], five[2]})));
    const Statistic two = five[2]->regret_at(test_101, epochs), three = five[3]->regret_at(test_101, epochs);
    claims.push_back(
        claim("K = 2 is enough: K = 3 ends no better by more than the deviations",
              two.mean - three.mean <= std::max(two.deviation, three.deviation),
              fmt::format("test regret after the last epoch: K = 2 {}, K = 3 {}", two.text(), three.text())));
  }
  const auto with_darts = [&](std::vector<const SearchRuns*> which) {
    which.insert(which.begin(), every[0]);
    return which;
  };
  Json result = item_json(
      Json::array({curves("Figure 4 (a, b): test regret along the search, NAS-Bench-1Shot1 space 3, T = 1",
                          ground, with_darts(one), test_101, true),
                   curves("Figure 4 (c, d): the same with T = 5", ground, with_darts(five), test_101, true)}),
      std::move(claims), all, ground, "idarts-figure4.csv", options);
  result["notes"].push_back(only_test);
  result["notes"].push_back("The figure's grid of K is not in the text: 0, 1, 2 and 3 are ours.");
  return result;
}

Json idarts_figure2(const ReproduceOptions& options) {
  SearchGround ground = search_ground("nasbench201", options);
  // T = 4, K = 1 at the published rates is in all three parts: the last run of (a), the second of (b) and
  // (c).
  std::vector<SearchSetting> settings;
  for (const int64_t T : {1, 2, 4}) settings.push_back(idarts_setting(ground, T, 1, options));
  const SearchSetting published = settings.back();
  const std::vector<double> factors = {0.2, 1, 5};
  for (const bool of_alpha : {false, true}) {
    for (const double factor : factors) {
      if (factor == 1) continue;
      SearchSetting setting = published;
      nas::SearchOptions& o = setting.options;
      (of_alpha ? o.outer.rate : o.inner.rate) *= factor;
      o.final_rate = std::min(o.final_rate, o.inner.rate);
      setting.label = of_alpha ? fmt::format("alpha rate {:.2g}", o.outer.rate)
                               : fmt::format("rate {:.2g}", o.inner.rate);
      settings.push_back(setting);
    }
  }
  std::vector<SearchRuns> all = run_searches(ground, settings, options);
  SearchRuns weight_default = all[2], alpha_default = all[2];
  weight_default.setting.label = fmt::format("rate {:.2g}", published.options.inner.rate);
  alpha_default.setting.label = fmt::format("alpha rate {:.2g}", published.options.outer.rate);
  const std::vector<const SearchRuns*> of_T = {&all[0], &all[1], &all[2]},
                                       of_rate = {&all[3], &weight_default, &all[4]},
                                       of_alpha = {&all[5], &alpha_default, &all[6]};
  Json claims = Json::array();
  if (ground.benchmark) {
    const auto last = [](const SearchRuns* runs) { return runs->accuracy(test_201); };
    const auto why = [&](const std::vector<const SearchRuns*>& which) {
      std::string text = "CIFAR-10 test after the last epoch: ";
      for (const SearchRuns* runs : which) {
        text +=
            fmt::format("{}{} {}", runs == which.front() ? "" : ", ", runs->setting.label, last(runs).text());
      }
      return text;
    };
    const auto better = [&](const SearchRuns* a, const SearchRuns* b) { return last(a).mean > last(b).mean; };
    claims.push_back(claim("(a) more weight steps lead to better cells",
                           better(of_T[1], of_T[0]) && better(of_T[2], of_T[1]), why(of_T)));
    claims.push_back(claim("(b) a small rate of the weights is better than a large one",
                           better(of_rate[0], of_rate[2]) && better(of_rate[1], of_rate[2]), why(of_rate)));
    claims.push_back(claim("(c) a small rate of alpha is better than a large one",
                           better(of_alpha[0], of_alpha[2]) && better(of_alpha[1], of_alpha[2]),
                           why(of_alpha)));
  }
  Json result = item_json(
      Json::array({curves("Figure 2 (a): CIFAR-10 test accuracy along the search, NAS-Bench-201, K = 1",
                          ground, of_T, test_201, false),
                   curves("Figure 2 (b): the same by the rate of the weights, T = 4, K = 1", ground, of_rate,
                          test_201, false),
                   curves("Figure 2 (c): the same by the rate of alpha, T = 4, K = 1", ground, of_alpha,
                          test_201, false)}),
      std::move(claims), all, ground, "idarts-figure2.csv", options);
  result["notes"].push_back(
      "The figure's grids are not in the text: a fifth, one and five times the published rates are ours. The "
      "series takes the rate of the weights, as the paper's gamma.");
  return result;
}

}  // namespace bilevel::reproduce
