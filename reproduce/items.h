#pragma once
// The items, each in a file of its paper, and what they build their results of.

#include <string>

#include "bilevel/run/json.h"
#include "reproduce/reproduce.h"

namespace bilevel::reproduce {

Json krmd_toy(const ReproduceOptions& options);
Json krmd_table1(const ReproduceOptions& options);
Json krmd_table2(const ReproduceOptions& options);
Json krmd_table3(const ReproduceOptions& options);
Json krmd_table4(const ReproduceOptions& options);
Json krmd_figure5(const ReproduceOptions& options);
Json krmd_figure6(const ReproduceOptions& options);
Json krmd_figure7(const ReproduceOptions& options);
Json fsla_figure1(const ReproduceOptions& options);
Json fsla_cleaning(const ReproduceOptions& options);
Json fsla_ablation(const ReproduceOptions& options);
Json stocbio_cleaning(const ReproduceOptions& options);
Json stocbio_figure1(const ReproduceOptions& options);
Json stocbio_figure5(const ReproduceOptions& options);
Json stocbio_figure6(const ReproduceOptions& options);
Json stocbio_newsgroups(const ReproduceOptions& options);
Json stocbio_theory(const ReproduceOptions& options);
Json idarts_table1(const ReproduceOptions& options);
Json idarts_table2(const ReproduceOptions& options);
Json idarts_table3(const ReproduceOptions& options);
Json idarts_table4(const ReproduceOptions& options);
Json idarts_figure1(const ReproduceOptions& options);
Json idarts_figure2(const ReproduceOptions& options);
Json idarts_figure3(const ReproduceOptions& options);
Json idarts_figure4(const ReproduceOptions& options);
Json idarts_theorem2(const ReproduceOptions& options);

Json claim(const std::string& text, bool holds, const std::string& why);
// The runs do not decide it: they ended badly, were cut short or are too near to each other.
Json undecided(const std::string& text, const std::string& why);
Json table(const std::string& title, Json rows);

}  // namespace bilevel::reproduce
