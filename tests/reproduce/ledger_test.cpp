// The ledger in docs/reproduce.md: a row for every table and figure, each with an item that exists or a
// reason, and a row for every item.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reproduce/reproduce.h"

namespace bilevel::test {
namespace {

struct Row {
  std::string paper, what, headline, ours, scale, seeds, verdict, command, time;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string page() {
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  std::ifstream file(std::string(source != nullptr ? source : ".") + "/docs/reproduce.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The rows between the heading "## The ledger" and the next heading.
std::vector<Row> ledger() {
  std::istringstream file(page());
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## The ledger";
    if (!inside || !line.starts_with("| ") || line.starts_with("| paper")) continue;
    std::vector<std::string> cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(trimmed(cell));
    EXPECT_EQ(cells.size(), 9U) << line;
    if (cells.size() != 9) continue;
    rows.push_back(
        {cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8]});
  }
  return rows;
}

std::set<std::string> items_in(const std::string& text) {
  std::set<std::string> names;
  const std::regex item("[a-z]+:[a-z0-9]+");
  for (std::sregex_iterator at(text.begin(), text.end(), item), end; at != end; ++at) names.insert(at->str());
  return names;
}

TEST(Ledger, NamesAnItemThatExistsOrAReasonInEveryRow) {
  const std::vector<Row> rows = ledger();
  ASSERT_FALSE(rows.empty());
  for (const Row& row : rows) {
    const std::set<std::string> names = items_in(row.command);
    for (const std::string& name : names) EXPECT_NO_THROW(reproduce::find_item(name)) << row.what;
    EXPECT_TRUE(!names.empty() || row.command.starts_with("none: ")) << row.paper << " " << row.what;
    EXPECT_FALSE(row.headline.empty()) << row.what;
    EXPECT_FALSE(row.ours.empty()) << row.what;
  }
}

TEST(Ledger, HasAVerdictOfFourInEveryRow) {
  const std::set<std::string> verdicts = {"agrees", "disagrees", "undecided", "not obtainable"};
  for (const Row& row : ledger()) {
    const std::string verdict = trimmed(row.verdict.substr(0, row.verdict.find(':')));
    EXPECT_TRUE(verdicts.contains(verdict)) << row.paper << " " << row.what << ": " << row.verdict;
    const bool has_reason = row.verdict.find(':') != std::string::npos;
    EXPECT_TRUE(verdict == "agrees" || has_reason) << row.what << ": why?";
  }
}

TEST(Ledger, CountsItsVerdicts) {
  std::map<std::string, int> count;
  const std::vector<Row> rows = ledger();
  for (const Row& row : rows) ++count[trimmed(row.verdict.substr(0, row.verdict.find(':')))];
  std::string text = page();
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string agree = count["agrees"] == 1 ? " agrees, " : " agree, ",
                    disagree = count["disagrees"] == 1 ? " disagrees, " : " disagree, ";
  EXPECT_THAT(text, ::testing::HasSubstr("Of " + std::to_string(rows.size()) + " rows " +
                                         std::to_string(count["agrees"]) + agree +
                                         std::to_string(count["disagrees"]) + disagree +
                                         std::to_string(count["undecided"]) + " are undecided and " +
                                         std::to_string(count["not obtainable"]) + " not obtainable."));
}

TEST(Ledger, HasARowForEveryItem) {
  std::set<std::string> named;
  for (const Row& row : ledger()) named.merge(items_in(row.command));
  for (const reproduce::Item& item : reproduce::items()) EXPECT_TRUE(named.contains(item.name)) << item.name;
}

// A command without a scale is a quick one.
TEST(Ledger, SaysFullOrMediumOnlyBesideACommandOfThatScale) {
  for (const Row& row : ledger()) {
    const bool says_it = row.scale.starts_with("full") || row.scale.starts_with("medium");
    const std::string scale = row.scale.substr(0, row.scale.find_first_of(";, "));
    EXPECT_TRUE(!says_it || row.command.find("--scale " + scale) != std::string::npos)
        << row.paper << " " << row.what << ": " << row.scale << ", " << row.command;
  }
}

// What the papers number, with their appendices.
TEST(Ledger, MissesNoTableAndNoFigure) {
  const std::map<std::string, std::pair<int, int>> tables_and_figures = {
      {"iDARTS", {4, 4}}, {"stocBiO", {2, 6}}, {"FSLA", {0, 6}}, {"K-RMD", {4, 8}}};
  const std::vector<Row> rows = ledger();
  for (const auto& [paper, counts] : tables_and_figures) {
    for (const bool figure : {false, true}) {
      for (int number = 1; number <= (figure ? counts.second : counts.first); ++number) {
        const std::string name = (figure ? "figure " : "table ") + std::to_string(number);
        const auto named = [&](const Row& row) { return row.paper == paper && row.what.starts_with(name); };
        EXPECT_EQ(std::count_if(rows.begin(), rows.end(), named), 1) << paper << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace bilevel::test
