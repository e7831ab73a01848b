// Pages of runs whose files say anything: no text of theirs becomes a tag.
#include "bilevel/report/report.h"

#include <cstdlib>

#include "bilevel/report/study.h"
#include "bilevel/run/json_value.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

// Where a page has a tag that it never writes itself.
bool has_foreign_tag(const std::string& page) {
  for (const char* tag : {"<script", "<iframe", "<object", "<img", "<x"}) {
    if (page.find(tag) != std::string::npos) return true;
  }
  return false;
}

// A list: the configuration, the summary, and records.
RunData run_of(const Json& json) {
  RunData run;
  run.facts.command = run.facts.folder = run.facts.message = "<x>";
  run.facts.status = RunStatus::failed;
  size_t i = 0;
  for (const Json& part : json) {
    if (!part.is_object()) continue;
    if (i == 0) run.config = part;
    if (i == 1) run.summary = part;
    if (i > 1) run.metrics.lines.push_back(part);
    ++i;
  }
  return run;
}

int give_report(std::string_view bytes) {
  Json json;
  try {
    json = parse_bounded<Json>(bytes);
  } catch (const std::exception&) {
    return 0;  // what reads the files refuses it: target run_folder
  }
  // Without a program that draws, which takes as long as ten thousand pages.
  static const int no_programs = ::setenv("PATH", "/nonexistent", 1);
  (void)no_programs;
  const RunData run = run_of(json);
  require(!has_foreign_tag(run_page(run, {})), "report: a tag that came from a file");
  RunData done = run;  // which a study counts
  done.facts.status = RunStatus::finished;
  require(!has_foreign_tag(comparison_page({run, done}, {{}, {}}, make_study({run, done}, {{}, {}}))),
          "comparison: a tag that came from a file");
  return 1;
}

const Register report_target("report", give_report);

}  // namespace
}  // namespace bilevel::fuzz
