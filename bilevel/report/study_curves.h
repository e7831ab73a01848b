#pragma once
// How the configurations of a study went: for every number of the records the mean over the runs of a
// configuration, step by step, in a band of one standard deviation.

#include <string>

#include "bilevel/report/study.h"

namespace bilevel {

struct MeanCurve {
  struct Place {
    double step = 0;
    Statistic statistic;  // over the runs that have a record at this step
  };
  std::vector<Place> places;
};
MeanCurve mean_curve(const std::vector<RunData>& runs, const StudyGroup& group, const Measure& measure);

// The section of a page; empty where no configuration has been run twice.
std::string study_curves_html(const std::vector<RunData>& runs, const Study& study);

}  // namespace bilevel
