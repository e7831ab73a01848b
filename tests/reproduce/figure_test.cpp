// Means of curves, and figures as one SVG.
#include "reproduce/figure.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "bilevel/report/plot.h"

namespace bilevel::test {
namespace {

using reproduce::Figure;
using reproduce::MeanCurve;
using reproduce::Points;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MeanCurve, IsTakenWhereAllCurvesAre) {
  const Points straight = {{0, 0}, {4, 8}}, bent = {{1, 4}, {2, 6}, {6, 6}};
  const MeanCurve mean = reproduce::mean_curve({straight, bent, {}}, 3);  // 1, 2, 3, 4; nothing of the third
  ASSERT_EQ(mean.mean.size(), 4U);
  const double expected[] = {3, 5, 6, 7};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(mean.mean[i].first, 1.0 + static_cast<double>(i));
    EXPECT_DOUBLE_EQ(mean.mean[i].second, expected[i]);
  }
  EXPECT_DOUBLE_EQ(mean.deviation[0].second, std::sqrt(2.0));  // of 2 and 4
  EXPECT_DOUBLE_EQ(mean.deviation[2].second, 0);
}

TEST(MeanCurve, OfOneIsTheCurveItself) {
  const Points one = {{0, 1}, {2, 3}};
  EXPECT_EQ(reproduce::mean_curve({one}).mean, one);
  EXPECT_TRUE(reproduce::mean_curve({one}).deviation.empty());
  EXPECT_TRUE(reproduce::mean_curve({}).mean.empty());
  EXPECT_TRUE(reproduce::mean_curve({{{0, 1}, {1, 1}}, {{2, 1}, {3, 1}}}).mean.empty());  // they do not meet
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(Figure, IsOneSvgWithAPanelEachAndOneLegend) {
  if (!can_plot()) GTEST_SKIP() << plot_package();
  const MeanCurve curve{{{0, 1}, {1, 2}, {2, 1}}, {}};
  const Figure figure{.name = "test",
                      .labels = {"A & B", "C"},
                      .panels = {{.title = "first", .x_label = "seconds", .curves = {curve, curve}},
                                 {.title = "second", .x_label = "iterations", .curves = {curve, {}}}}};
  const std::string svg = reproduce::figure_svg(figure);
  EXPECT_EQ(count(svg, "<svg"), 3U);
  EXPECT_EQ(count(svg, "</svg>"), 3U);
  EXPECT_THAT(svg, Not(HasSubstr("<?xml")));
  EXPECT_THAT(svg, HasSubstr(">A &amp; B</text>"));
  EXPECT_THAT(svg, HasSubstr(curve_color(1)));
  // An id may stand only once in a document.
  EXPECT_EQ(count(svg, "id='p0-gpDot'"), 1U);
  EXPECT_EQ(count(svg, "id='p1-gpDot'"), 1U);
  EXPECT_EQ(count(svg, "id='gp"), 0U);
  EXPECT_EQ(count(svg, "href='#gp"), 0U);
}

// The place of every entry of the legend, by the text.
std::pair<int, int> place_of(const std::string& svg, const std::string& label) {
  const size_t end = svg.find(">" + label + "</text>"), begin = svg.rfind("<text x=\"", end);
  int x = 0, y = 0;
  EXPECT_EQ(std::sscanf(svg.c_str() + begin, "<text x=\"%d\" y=\"%d\"", &x, &y), 2) << label;
  return {x, y};
}

TEST(Figure, LegendEntriesDoNotReachIntoEachOther) {
  if (!can_plot()) GTEST_SKIP() << plot_package();
  const MeanCurve curve{{{0, 1}, {1, 2}, {2, 1}}, {}};
  const std::string first = "k^-0.75, noise that stays and stays", second = "constant, noise that vanishes";
  const std::string svg = reproduce::figure_svg(
      {.name = "test", .labels = {first, second}, .panels = {{.title = "one", .curves = {curve, curve}}}});
  const auto [x, y] = place_of(svg, first);
  const auto [next_x, next_y] = place_of(svg, second);
  // Letters of this size are 7 pixels wide or more.
  EXPECT_TRUE(next_y > y || next_x - x >= 7 * static_cast<int>(first.size())) << next_x - x;
  // Short ones share a line.
  const std::string few = reproduce::figure_svg(
      {.name = "test", .labels = {"A", "B"}, .panels = {{.title = "one", .curves = {curve, curve}}}});
  EXPECT_EQ(place_of(few, "A").second, place_of(few, "B").second);
}

TEST(ValueAt, IsAStraightLineBetweenPointsAndStaysBeyondThem) {
  const Points points = {{1, 2}, {3, 6}};
  EXPECT_DOUBLE_EQ(reproduce::value_at(points, 2), 4);
  EXPECT_DOUBLE_EQ(reproduce::value_at(points, 0), 2);
  EXPECT_DOUBLE_EQ(reproduce::value_at(points, 9), 6);
}

}  // namespace
}  // namespace bilevel::test
