#pragma once
// What `bilevel search` is asked for: its options, and how they fall together with the published defaults,
// which depend on the space and the method.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "bilevel/data/search_split.h"
#include "bilevel/nas/search_options.h"
#include "bilevel/nas/supernet.h"
#include "cli/auto_method.h"
#include "cli/common.h"
#include "cli/run_options.h"

namespace bilevel::cli {

struct SearchFlags {
  CommonOptions common{.dtype = "float"};
  std::string space = "nasbench201";
  std::vector<std::string> operations;
  nas::SupernetOptions network;
  ImageDataOptions data;
  SearchSplitOptions split;
  AugmentOptions augment;
  std::string method = nas::default_method;
  std::string mixed, series_rate;
  nas::SearchOptions given;  // what the options below wrote to
  std::vector<std::pair<std::string, std::function<void(nas::SearchOptions&)>>>
      settings;  // and how to take it over
  std::string benchmark;
  RunFlags run;
  AutoFlags automatic{.accuracy = 0.1, .choice = {}};  // of --method auto
};

void add_search_options(CLI::App& command, SearchFlags& flags);
// The space's and the method's defaults, changed by what was given. Throws std::invalid_argument.
nas::SearchOptions search_options(const CLI::App& command, const SearchFlags& flags,
                                  const nas::SearchSpace& space);

}  // namespace bilevel::cli
