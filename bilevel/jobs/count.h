#pragma once
// The job `count`: parameters and multiply-adds of cells, without training or building anything.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/nas/network.h"
#include "bilevel/run/json.h"

namespace bilevel {

class RunContext;

struct CountJobOptions {
  std::string space = "nasbench201";
  std::vector<std::string> genotypes = {};  // as text or JSON
  std::string file = {};                    // and those of a file, one a line
  int64_t random = 0;                       // and so many that are drawn
  uint64_t seed = 0;
  nas::NetworkOptions network = {};
  int64_t image_size = 32;  // 224 on ImageNet, unless it is given
  Given given = {};
  static const Fields<CountJobOptions>& fields();
};

struct CellCount {
  std::string genotype = {};
  int64_t parameters = 0, multiply_adds = 0;
};
struct CountJobResult {
  std::vector<CellCount> cells = {};
  Json json = {};
};
CountJobResult run_count(CountJobOptions options, RunContext& context);

}  // namespace bilevel
