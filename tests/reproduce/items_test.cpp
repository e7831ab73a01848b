// The list of items, what their options may be, and how a result is written for a reader.

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "reproduce/reproduce.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using reproduce::Item;
using reproduce::ReproduceOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Items, HaveNamesOfTheirOwnAndAreFoundByThem) {
  std::set<std::string> names;
  for (const Item& item : reproduce::items()) {
    EXPECT_TRUE(names.insert(item.name).second) << item.name;
    EXPECT_EQ(&reproduce::find_item(item.name), &item);
    EXPECT_FALSE(item.summary.empty()) << item.name;
  }
  EXPECT_EQ(names.size(), 26U);
  EXPECT_THAT(message([] { reproduce::find_item("krmd:table9"); }),
              AllOf(HasSubstr("item 'krmd:table9' is unknown: choose from krmd:toy, krmd:table1"),
                    HasSubstr("idarts:figure4")));
}

TEST(Items, TakeOnlyTheOptionsThatTheyRead) {
  ReproduceOptions options;
  options.epochs = 3;
  EXPECT_EQ(message([&] { options.validate(reproduce::find_item("krmd:toy")); }),
            "epochs has no effect with krmd:toy; only idarts:table1, idarts:table2, idarts:table3, "
            "idarts:figure1, idarts:figure2 and idarts:figure4 use it. Leave it out");
  EXPECT_NO_THROW(options.validate(reproduce::find_item("idarts:table1")));
  options.rule = "public-code";
  EXPECT_NO_THROW(options.validate(reproduce::find_item("idarts:table1")));
  EXPECT_THAT(message([&] { options.validate(reproduce::find_item("idarts:table3")); }),
              HasSubstr("rule = public-code has no effect with idarts:table3"));
  options = {};
  options.scale = "medium";
  for (const char* name : {"fsla:cleaning", "idarts:table1", "idarts:table3", "idarts:figure2"})
    EXPECT_NO_THROW(options.validate(reproduce::find_item(name))) << name;
  EXPECT_THAT(message([&] { options.validate(reproduce::find_item("krmd:toy")); }),
              HasSubstr("scale = medium has no effect with krmd:toy"));
  options = {};
  options.seeds = {1, 2};
  EXPECT_NO_THROW(options.validate(reproduce::find_item("stocbio:cleaning")));
  EXPECT_THAT(message([&] { options.validate(reproduce::find_item("krmd:table2")); }), HasSubstr("seeds"));
  options = {};
  options.epochs = -1;
  EXPECT_EQ(message([&] { options.validate(reproduce::find_item("idarts:table1")); }),
            "epochs = -1: must be at least 1, or 0 for the scale's own");
}

TEST(Items, AResultIsTablesNotesAndClaims) {
  const Json rows = {{{"K", 1}, {"error", 0.123456}}, {{"K", 100}, {"error", nullptr}}};
  const Json result = {{"tables", {{{"title", "Figure 3"}, {"rows", rows}}}},
                       {"notes", {"quick: 10 iterations"}},
                       {"claims",
                        {{{"claim", "it falls"}, {"holds", true}, {"why", "0.1"}},
                         {{"claim", "it is 0"}, {"holds", false}, {"why", "0.2"}},
                         {{"claim", "it is 1"}, {"holds", nullptr}, {"why", "cut short"}}}}};
  EXPECT_EQ(reproduce::result_text(result),
            "Figure 3\n"
            "    K   error\n"
            "    1  0.1235\n"
            "  100       -\n"
            "\n"
            "quick: 10 iterations\n"
            "holds: it falls (0.1)\n"
            "does not hold: it is 0 (0.2)\n"
            "undecided: it is 1 (cut short)\n");
}

}  // namespace
}  // namespace bilevel::test
