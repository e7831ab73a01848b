#pragma once
// The job `reproduce`: one item in a RunContext, or the list of all items.

#include <string>

#include "bilevel/fields/fields.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/seed_list.h"
#include "bilevel/run/json.h"
#include "reproduce/reproduce.h"

namespace bilevel {

class RunContext;

namespace reproduce {

struct ReproduceJobOptions {
  ReproduceJobOptions() { compute.dtype = "float"; }  // of the items on data; the small ones are in double
  std::string item = {};                              // empty: all are listed
  ReproduceOptions settings = {};
  SeedList seeds = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<ReproduceJobOptions>& fields();
};

struct ReproduceJobResult {
  JobEnd end = {};
  Json json = {};  // {"item", "scale", "seed", "tables", ...}, or {"items": [{"name", "summary"}, ...]}
  std::string text = {};  // the same for a reader
};
ReproduceJobResult run_reproduce(ReproduceJobOptions options, RunContext& context);

}  // namespace reproduce
}  // namespace bilevel
