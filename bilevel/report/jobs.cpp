#include "bilevel/report/jobs.h"

#include "bilevel/report/job_parts.h"

namespace bilevel {
namespace {

JobReport report_of_job(const RunData& run) {
  if (run.facts.command == "search") return search_report(run);
  if (run.facts.command == "train") return train_report(run);
  if (run.facts.command == "clean") return clean_report(run);
  if (run.facts.command == "interact") return interact_report(run);
  if (run.facts.command == "tune") return tune_report(run);
  return plain_report(run);
}

}  // namespace

JobReport job_report(const RunData& run) {
  JobReport job = report_of_job(run);
  job.numbers = final_numbers(run);
  return job;
}

}  // namespace bilevel
