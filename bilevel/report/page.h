#pragma once
// What the page of a run and the page of several have in common: the frame, and what is read from a run's
// files.

#include <string>

#include "bilevel/report/report.h"

namespace bilevel::page {

std::string whole(const std::string& title, const std::string& body);
std::string section(const std::string& id, const std::string& title, const std::string& content);
std::string status_badge(RunStatus status);
std::string footer(const RunFacts& facts);

// nullptr: it is no object, or has no such member.
const Json* member(const Json& object, const char* name);
// A value of an option: a word, or several.
std::string option_text(const Json& value);
// The last part of a folder's path.
std::string folder_name(const std::string& folder);
// What was counted by a run's end, or by its last record; nullptr = nothing.
const Json* last_counts(const RunData& run);
// "Hessian products"
std::string count_name(const std::string& name);

}  // namespace bilevel::page
