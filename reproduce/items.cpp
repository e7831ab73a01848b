#include "reproduce/items.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/require.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/fields/option_text.h"

namespace bilevel::reproduce {

const std::vector<Item>& items() {
  constexpr ItemReads searches{.search = true, .seeds = true, .ranks = true};
  constexpr ItemReads sized_searches{.search = true, .seeds = true, .medium = true, .ranks = true};
  static const std::vector<Item> list = {
      {"krmd:toy", "K-RMD figures 1-4: bound, descent, bias and convergence on the toy", krmd_toy},
      {"krmd:table1", "K-RMD table 1: time and space of forward, reverse, checkpointed and truncated mode",
       krmd_table1},
      {"krmd:table2",
       "K-RMD table 2 and appendix G.1: cleaning MNIST for K = 1 to 100 (needs mnist)",
       krmd_table2,
       {.medium = true, .ranks = true}},
      {"krmd:table3",
       "K-RMD table 3: interaction of classes for K = 1 to T (cifar10, cifar100 or fashion-mnist)",
       krmd_table3},
      {"krmd:table4",
       "K-RMD table 4: one-shot Omniglot for K = 1 to T and a short horizon (omniglot or blobs)",
       krmd_table4,
       {.medium = true}},
      {"krmd:figure5",
       "K-RMD figure 5: norm of the unrolled gradient along those runs (needs mnist)",
       krmd_figure5,
       {.medium = true, .ranks = true}},
      {"krmd:figure6",
       "K-RMD figure 6: loss, norm of the full gradient and cosine to it for K = 1 to T, on table 3's job",
       krmd_figure6},
      {"krmd:figure7",
       "K-RMD figure 7: accuracy, cosine and relative error against K, with and without rho, on table 4's "
       "job",
       krmd_figure7},
      {"fsla:figure1", "FSLA figure 1: errors of FSLA, NS, BP and CG on a quadratic", fsla_figure1},
      {"fsla:cleaning",
       "FSLA figures 2-4: cleaning with a small CNN (needs mnist, fashion-mnist)",
       fsla_cleaning,
       {.medium = true, .ranks = true}},
      {"fsla:ablation",
       "FSLA figures 5-6: its rates and batch size (needs mnist)",
       fsla_ablation,
       {.medium = true, .ranks = true}},
      {"stocbio:cleaning",
       "stocBiO figure 4: stocBiO, BSA, TTSA, HOAG on noisy MNIST (needs mnist)",
       stocbio_cleaning,
       {.seeds = true, .medium = true, .ranks = true}},
      {"stocbio:figure1",
       "stocBiO figure 1: AID-BiO, ITD-BiO, ANIL, MAML, accuracy against time (fc100, omniglot or blobs)",
       stocbio_figure1},
      {"stocbio:figure5", "stocBiO figure 5: ITD-BiO and ANIL, T = 10 (miniimagenet, omniglot or blobs)",
       stocbio_figure5},
      {"stocbio:figure6", "stocBiO figure 6: ITD-BiO and ANIL, T = 20 (fc100, omniglot or blobs)",
       stocbio_figure6},
      {"stocbio:newsgroups",
       "stocBiO figures 2-3: per-feature regularisers on 20 Newsgroups",
       stocbio_newsgroups,
       {.seeds = true, .medium = true, .ranks = true}},
      {"stocbio:theory",
       "stocBiO propositions and theorems: bias, variance, batch sizes and orders of products",
       stocbio_theory},
      {"idarts:table1",
       "iDARTS table 1: iDARTS, DARTS, GDAS, RandomNAS on NAS-Bench-201 (needs its table)",
       idarts_table1,
       {.search = true, .seeds = true, .medium = true, .rule = true, .ranks = true}},
      {"idarts:table2",
       "iDARTS table 2: the DARTS space, cells found and their counts",
       idarts_table2,
       {.search = true, .seeds = true}},
      {"idarts:table3", "iDARTS table 3: T and K on NAS-Bench-201 (needs its table)", idarts_table3,
       sized_searches},
      {"idarts:table4", "iDARTS table 4: products and bytes of every hypergradient on a supernet",
       idarts_table4},
      {"idarts:figure1", "iDARTS figure 1: T on NAS-Bench-1Shot1 (needs its table)", idarts_figure1,
       searches},
      {"idarts:figure2", "iDARTS figure 2: T and the rates on NAS-Bench-201 (needs its table)",
       idarts_figure2, sized_searches},
      {"idarts:figure3", "iDARTS figure 3: the cells that go by its name, drawn and counted", idarts_figure3},
      {"idarts:figure4", "iDARTS figure 4: K on NAS-Bench-1Shot1 (needs its table)", idarts_figure4,
       searches},
      {"idarts:theorem2",
       "iDARTS theorem 2: rates of alpha that are square summable, and constant ones",
       idarts_theorem2,
       {.seeds = true}},
  };
  return list;
}

const Item& find_item(const std::string& name) {
  std::vector<std::string> names;
  for (const Item& item : items()) {
    if (item.name == name) return item;
    names.push_back(item.name);
  }
  refuse_unknown("item", name, names);
}

namespace {

// Throws where an option was given that the item does not read.
void require_reader(const Item& item, bool given, const std::string& option, bool ItemReads::*reads) {
  if (!given || item.reads.*reads) return;
  std::vector<std::string> readers;
  for (const Item& each : items()) {
    if (each.reads.*reads) readers.push_back(each.name);
  }
  throw OptionError(no_effect(option, item.name, readers));
}

}  // namespace

void ReproduceOptions::validate(const Item& item) const {
  require_reader(item, !benchmark.empty(), named("benchmark"), &ItemReads::search);
  require_reader(item, epochs != 0, named("epochs"), &ItemReads::search);
  require_reader(item, !seeds.empty(), named("seeds"), &ItemReads::seeds);
  require_reader(item, medium(), named("scale", "medium"), &ItemReads::medium);
  require_reader(item, rule != "paper", named("rule", rule), &ItemReads::rule);
  if (group && !item.reads.ranks) {
    std::vector<std::string> dealt;
    for (const Item& each : items()) {
      if (each.reads.ranks) dealt.push_back(each.name);
    }
    throw OptionError(
        fmt::format("{} is no grid of runs that {} ranks could share: start one process; ranks share {}",
                    item.name, group->size(), fmt::join(dealt, ", ")));
  }
  if (epochs < 0) {
    throw OptionError(fmt::format("{}: must be at least 1, or 0 for the scale's own",
                                  named("epochs", fmt::to_string(epochs))));
  }
}

std::vector<uint64_t> ReproduceOptions::seeds_or(uint64_t count) const {
  if (!seeds.empty()) return seeds;
  std::vector<uint64_t> list;
  for (uint64_t i = 0; i < count; ++i) list.push_back(seed + i);
  return list;
}

Json claim(const std::string& text, bool holds, const std::string& why) {
  return {{"claim", text}, {"holds", holds}, {"why", why}};
}

Json undecided(const std::string& text, const std::string& why) {
  return {{"claim", text}, {"holds", nullptr}, {"why", why}};
}

Json table(const std::string& title, Json rows) { return {{"title", title}, {"rows", std::move(rows)}}; }

}  // namespace bilevel::reproduce
