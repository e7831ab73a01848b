// iDARTS (Zhang et al., ICML 2021), figures 1, 2 and 4: how T, K and the rates show along a search.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
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
    const auto side = [](const SearchRuns& runs, int64_t last) { return runs.mean_regrets(test_101, last); };
    const std::string soon = fmt::format("mean test regret up to epoch {}", early);
    std::vector<std::pair<Side, Side>> of_darts;
    for (size_t i = 1; i < all.size(); ++i) of_darts.emplace_back(side(all[i], early), side(all[0], early));
    claims.push_back(
        each_ahead("iDARTS is ahead of DARTS early, whatever T", soon, Ahead::lower, of_darts, 2));
    claims.push_back(ahead_of_all(
        "with one weight step, as DARTS has, it is still ahead along the whole search",
        "mean test regret over all epochs", Ahead::lower, side(all[1], epochs), {side(all[0], epochs)}, 2));
    claims.push_back(in_order("more weight steps find good cells sooner", soon, Ahead::lower,
                              {side(all[3], early), side(all[2], early), side(all[1], early)}, 2));
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
    const std::string what = "mean test regret along the search";
    const auto side = [&](const SearchRuns* runs) { return runs->mean_regrets(test_101, epochs); };
    std::vector<std::pair<Side, Side>> of_darts, of_one;
    for (size_t K = 1; K < one.size(); ++K) of_darts.emplace_back(side(one[K]), side(every[0]));
    for (size_t K = 0; K < one.size(); ++K) of_one.emplace_back(side(five[K]), side(one[K]));
    claims.push_back(
        each_ahead("with T = 1 every K from 1 on is ahead of DARTS", what, Ahead::lower, of_darts, 2));
    claims.push_back(each_ahead("T = 5 is better than T = 1 for every K", what, Ahead::lower, of_one, 2));
    claims.push_back(in_order("with T = 5 more products help up to K = 2", what, Ahead::lower,
                              {side(five[2]), side(five[1]), side(five[0])}, 2));
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
    const std::string what = "CIFAR-10 test after the last epoch";
    const auto side = [](const SearchRuns* runs) { return runs->accuracies(test_201); };
    // The small and the published one beside the large one.
    const auto of_small = [&](const std::vector<const SearchRuns*>& which) {
      return std::vector<std::pair<Side, Side>>{{side(which[0]), side(which[2])},
                                                {side(which[1]), side(which[2])}};
    };
    claims.push_back(in_order("(a) more weight steps lead to better cells", what, Ahead::higher,
                              {side(of_T[2]), side(of_T[1]), side(of_T[0])}, 2));
    claims.push_back(each_ahead("(b) a small rate of the weights is better than a large one", what,
                                Ahead::higher, of_small(of_rate), 2));
    claims.push_back(each_ahead("(c) a small rate of alpha is better than a large one", what, Ahead::higher,
                                of_small(of_alpha), 2));
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
