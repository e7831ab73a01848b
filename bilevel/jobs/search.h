#pragma once
// The job `search`: a network for your own images, by differentiable architecture search.
//
//     SearchJobOptions options;
//     options.search.epochs = 5;
//     RunContext context;  // in memory
//     const SearchJobResult found = run_search_on(images, options, context);

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/data/augment.h"
#include "bilevel/data/image_data.h"
#include "bilevel/data/search_split.h"
#include "bilevel/fields/fields.h"
#include "bilevel/jobs/automatic.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/nas/cell_baselines.h"
#include "bilevel/nas/search.h"
#include "bilevel/nas/search_diagnosis.h"
#include "bilevel/nas/search_options.h"
#include "bilevel/nas/supernet.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct SearchJobOptions {
  SearchJobOptions();
  std::string space = "nasbench201";
  std::string size = "published";            // or small: what a processor searches in minutes (search_size.h)
  std::vector<std::string> operations = {};  // some of the space's; empty = all
  nas::SupernetOptions network = {};         // channels and cells; the images say the rest
  ImageDataOptions data = {};
  AugmentOptions augment = {};
  SearchSplitOptions split = {};
  // Options that were not given and still have these values get the published value of the space and the
  // method. The method may also be auto.
  nas::SearchOptions search = {};
  std::string cross = {};        // difference or exact; empty = the method's
  std::string linear_rate = {};  // a number or auto; empty = the weights' rate
  std::string benchmark = {};    // a table's file
  int64_t baselines = 0;         // random cells to train beside the found cell and the all-3x3 cell
  bool profile = false;          // show where the time went
  std::string batch_norm = {};   // global or rank; empty = global on CPUs
  AutomaticOptions automatic = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<SearchJobOptions>& fields();
};

// Where a search's time went.
struct SearchProfile {
  struct Row {
    std::string name;
    int64_t calls = 0;
    double seconds = 0;
  };
  double seconds = 0;  // in all
  std::vector<Row> oracle_calls = {};
  std::vector<Row> operations = {};  // each without those that it calls
};

struct SearchJobResult {
  nas::SearchSpace space = {};
  nas::SearchOptions search = {};  // that was used
  nas::SearchSummary summary = {};
  bool has_table = false;
  std::optional<nas::BenchmarkEntry> in_table = {};  // of the genotype
  std::string table_note = {};                       // why it is not there
  int64_t parameters = 0, multiply_adds = 0;         // of the genotype's network at the space's own size
  // How far a number of alpha has moved, and how far as many steps in random directions move it; NaN where
  // alpha does not move.
  double alpha_moved = std::numeric_limits<double>::quiet_NaN(), alpha_moved_by_chance = alpha_moved;
  bool moved_by_chance() const { return alpha_moved < 2 * alpha_moved_by_chance; }
  std::vector<nas::TrainedCell> baselines = {};  // with the found cell first
  std::string baselines_on = {};                 // test or validation images
  std::optional<SearchProfile> profile = {};     // where it was asked for
  std::string folder = {};                       // empty: nothing is kept
  std::vector<std::string> files = {};           // in it, beside summary.json
  Json json = {};                                // all of it, as summary.json has it
  JobEnd end = {};
};
// Throws OptionError for options that cannot be, RunError for a run that cannot be resumed.
SearchJobResult run_search(SearchJobOptions options, RunContext& context);
// On images in memory; `options.data` is not read.
SearchJobResult run_search_on(const ImageData& images, SearchJobOptions options, RunContext& context);

// What the search that is kept there would be advised to do at its weights and alpha now.
nas::SearchDiagnosis diagnose_search_run(const StoredRun& run, double accuracy, RunContext& context);

// The accuracy in a table that people look at first; NaN where there is none.
double test_accuracy(const nas::EpochRecord& record);

}  // namespace bilevel
