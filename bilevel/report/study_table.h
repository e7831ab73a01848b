#pragma once
// The table of a study in the forms that people paste: for a paper, a web page, a spreadsheet, a program.

#include <string>

#include "bilevel/report/study.h"
#include "bilevel/run/json.h"

namespace bilevel {

// "94.36 +- 0.12": both with the same digits, chosen by the spread; the mean alone where there is one value.
// `sign` stands between them.
std::string mean_and_spread(const StudyNumber& number, const Statistic& statistic, const std::string& sign);

std::string study_markdown(const Study& study);  // columns padded, so that it reads well as plain text
std::string study_csv(const Study& study);    // RFC 4180; mean, deviation and count in columns of their own
std::string study_latex(const Study& study);  // a tabular with booktabs' rules
Json study_json(const Study& study);

// The section of a page: the table, what it was told apart by, and the pasteable forms.
std::string study_html(const Study& study);

}  // namespace bilevel
