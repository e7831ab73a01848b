#include "bilevel/nas/genotype.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::nas {
namespace {

using test::doubles;
using test::message;
using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const published_darts =
    "normal: (sep_conv_3x3,0)(sep_conv_3x3,1) (sep_conv_3x3,0)(sep_conv_3x3,1) "
    "(sep_conv_3x3,1)(skip_connect,0) (skip_connect,0)(dil_conv_3x3,2) "
    "reduce: (max_pool_3x3,0)(max_pool_3x3,1) (skip_connect,2)(max_pool_3x3,1) "
    "(max_pool_3x3,0)(skip_connect,2) (skip_connect,2)(max_pool_3x3,1)";

class EverySpace : public ::testing::TestWithParam<std::string> {
 protected:
  const SearchSpace space = make_space(GetParam());
};

TEST_P(EverySpace, TextAndJsonGoRound) {
  Random random(11);
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    const Genotype genotype = random_genotype(space, random);
    EXPECT_NO_THROW(validate_genotype(space, genotype));
    const std::string text = genotype_text(genotype);
    EXPECT_EQ(parse_genotype(space, "  \n" + text + "\t\n"), genotype) << text;
    EXPECT_EQ(genotype_text(parse_genotype(space, text)), text);
    EXPECT_EQ(genotype_from_json(space, genotype_json(genotype)), genotype) << text;
    EXPECT_EQ(parse_genotype(space, " " + genotype_json(genotype)), genotype);
    seen.insert(text);
  }
  EXPECT_GT(seen.size(), 190U);
}

TEST_P(EverySpace, EveryPrefixAndEveryChangedCharacterIsRefusedOrAnotherGenotype) {
  Random random(5);
  const Genotype genotype = random_genotype(space, random);
  for (const std::string& text : {genotype_text(genotype), genotype_json(genotype)}) {
    for (size_t length = 0; length < text.size(); ++length) {
      EXPECT_THAT(message([&] { parse_genotype(space, text.substr(0, length)); }), HasSubstr("genotype"))
          << text.substr(0, length);
    }
    for (size_t i = 0; i < text.size(); ++i) {
      for (const char c : {'\0', '9', ')', '"', '\xff', '-'}) {
        std::string changed = text;
        changed[i] = c;
        try {
          const Genotype read = parse_genotype(space, changed);
          EXPECT_NO_THROW(validate_genotype(space, read));
        } catch (const std::invalid_argument& error) {
          EXPECT_THAT(error.what(), HasSubstr("genotype"));
        }
      }
    }
  }
}

TEST_P(EverySpace, DerivesWhatTheRandomWeightsSay) {
  Random random(3);
  const Tensor mixture = mixture_weights(space, test::random_vector(space.alpha_size(), 2));
  const Genotype genotype = derive_genotype(space, mixture);
  // softmax along rows of one block keeps the order within a row, but not across rows
  if (space.kind != SpaceKind::darts) {
    EXPECT_EQ(derive_genotype(space, test::random_vector(space.alpha_size(), 2)), genotype);
  }
  EXPECT_EQ(derive_genotype(space, mixture.to(at::kFloat)), genotype);
  Tensor bad = mixture.clone();
  bad[3] = std::nan("");
  EXPECT_THAT(message([&] { derive_genotype(space, bad); }), HasSubstr("finite"));
  EXPECT_THAT(message([&] { derive_genotype(space, mixture.narrow(0, 0, 4)); }), HasSubstr("not [4]"));
}

TEST_P(EverySpace, SharesSumToOne) {
  Random random(9);
  const Genotype genotype = random_genotype(space, random);
  double sum = 0;
  for (const double share : operation_shares(space, genotype)) sum += share;
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST_P(EverySpace, TheGraphNamesEveryOperationThatIsThere) {
  Random random(2);
  const Genotype genotype = random_genotype(space, random);
  const std::string dot = genotype_dot(genotype);
  EXPECT_THAT(dot, AllOf(HasSubstr("digraph"), HasSubstr("rankdir=LR"), HasSubstr("output")));
  for (const CellGenotype& cell : genotype.cells) {
    for (const GenotypeNode& node : cell.nodes) {
      EXPECT_THAT(dot, HasSubstr(node.operation));
      for (const GenotypeInput& input : node.inputs) {
        EXPECT_THAT(dot, HasSubstr(input.operation == "none" ? "" : input.operation));
      }
    }
  }
  EXPECT_THAT(dot, Not(HasSubstr("none")));
}

INSTANTIATE_TEST_SUITE_P(Genotypes, EverySpace, ::testing::ValuesIn(space_names()),
                         [](const auto& row) { return test::test_name(row.param); });

TEST(Derive, Nasbench201TakesTheStrongestOperationOfEachEdgeNoneAmongThem) {
  const SearchSpace space = make_space("nasbench201");
  Tensor mixture = at::full({6, 5}, 0.1, doubles());
  const std::vector<int64_t> chosen = {3, 0, 1, 2, 4, 3};
  for (int64_t edge = 0; edge < 6; ++edge) mixture[edge][chosen[static_cast<size_t>(edge)]] = 0.6;
  const Genotype genotype = derive_genotype(space, mixture.view({-1}));
  EXPECT_EQ(genotype_text(genotype),
            "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|avg_pool_3x3~1|nor_conv_3x3~2|");
  EXPECT_THAT(
      operation_shares(space, genotype),
      ElementsAre(DoubleEq(1 / 6.), DoubleEq(1 / 6.), DoubleEq(1 / 6.), DoubleEq(2 / 6.), DoubleEq(1 / 6.)));
  EXPECT_EQ(skip_count(genotype), 1);
  // ties: the first
  EXPECT_EQ(genotype_text(derive_genotype(space, at::ones({30}, doubles()))),
            "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|");
}

TEST(Derive, OneShotTakesTheStrongestParentsAndAllWhereThereIsNoChoice) {
  const SearchSpace space = make_space("nasbench1shot1-1");
  const Tensor mixture = test::vec({.1, .7, .2, .5, .3, .2, .2, .2, .6, .4, .5, .1,  // operations
                                    .1, .3, .1, .3, .2,                              // output
                                    .2, .5, .3,                                      // parents of node 3
                                    .4, .1, .1, .4});                                // of node 4
  const Genotype genotype = derive_genotype(space, mixture);
  EXPECT_EQ(genotype_text(genotype),
            "conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(1,2) conv3x3-bn-relu(0,3) output(1,3)");
  EXPECT_THAT(operation_shares(space, genotype), ElementsAre(0.25, 0.5, 0.25));
  EXPECT_EQ(skip_count(genotype), 0);
}

TEST(Derive, DartsKeepsTheTwoStrongestEdgesWithoutNone) {
  const SearchSpace space = make_space("darts");
  Tensor mixture = at::full({2, 14, 8}, 0.01, doubles());
  mixture.select(2, 0).fill_(0.9);  // none is the strongest everywhere, and never kept
  const auto set = [&](int64_t cell, int64_t edge, int64_t operation, double weight) {
    mixture[cell][edge][operation] = weight;
  };
  // node 2: edges 0-1; node 3: 2-4; node 4: 5-8; node 5: 9-13
  set(0, 0, 4, 0.2), set(0, 1, 5, 0.3);
  set(0, 2, 3, 0.2), set(0, 3, 1, 0.1), set(0, 4, 6, 0.3);
  set(0, 5, 3, 0.4), set(0, 8, 7, 0.2);
  set(0, 10, 2, 0.2), set(0, 13, 4, 0.2);
  const Genotype genotype = derive_genotype(space, mixture.view({-1}));
  EXPECT_EQ(genotype_text(genotype),
            "normal: (sep_conv_5x5,1)(sep_conv_3x3,0) (dil_conv_3x3,2)(skip_connect,0) "
            "(skip_connect,0)(dil_conv_5x5,3) (avg_pool_3x3,1)(sep_conv_3x3,4) "
            "reduce: (max_pool_3x3,0)(max_pool_3x3,1) (max_pool_3x3,0)(max_pool_3x3,1) "
            "(max_pool_3x3,0)(max_pool_3x3,1) (max_pool_3x3,0)(max_pool_3x3,1)");
  EXPECT_EQ(skip_count(genotype), 2);
  EXPECT_DOUBLE_EQ(operation_shares(space, genotype)[1], 0.5);
}

TEST(Derive, ANarrowSpaceDerivesItsOwnOperations) {
  const SearchSpace space = make_space("nasbench201", {"skip_connect", "nor_conv_3x3"});
  const Genotype genotype = derive_genotype(space, test::vec({1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(
      genotype_text(genotype),
      "|skip_connect~0|+|nor_conv_3x3~0|skip_connect~1|+|nor_conv_3x3~0|skip_connect~1|nor_conv_3x3~2|");
  EXPECT_THAT(message([&] {
                parse_genotype(space,
                               "|none~0|+|nor_conv_3x3~0|skip_connect~1|+|nor_conv_3x3~0|skip_connect~1|"
                               "nor_conv_3x3~2|");
              }),
              HasSubstr("position 1: expected an operation (skip_connect, nor_conv_3x3), found 'none"));
}

// Every parent set and every operation is drawn about equally often.
TEST(RandomGenotype, IsUniform) {
  const SearchSpace space = make_space("nasbench1shot1-2");
  Random random(1);
  std::map<std::string, int> outputs, second;
  for (int i = 0; i < 2000; ++i) {
    const Genotype genotype = random_genotype(space, random);
    const std::string text = genotype_text(genotype);
    ++outputs[text.substr(text.find("output"))];
    ++second[genotype.cells[0].nodes[1].operation];
  }
  EXPECT_EQ(outputs.size(), 10U);
  for (const auto& [name, count] : outputs) EXPECT_NEAR(count, 200, 60) << name;  // 4.5 standard deviations
  for (const auto& [name, count] : second) EXPECT_NEAR(count, 667, 95) << name;
}

TEST(GenotypeText, DartsReadsThePublishedPythonForm) {
  const SearchSpace space = make_space("darts");
  const Genotype genotype = parse_genotype(
      space,
      "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
      "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
      "normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
      "('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', "
      "1)], reduce_concat=range(2, 6))\n");
  EXPECT_EQ(genotype_text(genotype), published_darts);
  EXPECT_THAT(message([&] { parse_genotype(space, "Genotype(normal=[('sep_conv_3x3', 0) ('"); }),
              HasSubstr("position 37: expected ',', found"));
}

struct Wrong {
  const char* space;
  std::string text, says;
};

TEST(GenotypeText, SaysWhereAndWhatWasExpected) {
  const std::string darts = published_darts;
  const std::vector<Wrong> cases = {
      {"nasbench201", "", "genotype of nasbench201: position 0: expected '|', found its end"},
      {"nasbench201", "|nor_conv_7x7~0|", "position 1: expected an operation (none, skip_connect"},
      {"nasbench201", "|none~1|", "position 5: expected '~0', found '~1|'"},
      {"nasbench201", "|none~0|none~0|", "position 8: expected '+', found"},
      {"nasbench201", "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|x", "expected the end of the genotype"},
      {"nasbench1shot1-3", "sep_conv_3x3(0)", "expected an operation (maxpool3x3, conv3x3-bn-relu"},
      {"nasbench1shot1-3", "maxpool3x3(1)", "position 11: expected a vertex from 0 to 0, found '1)'"},
      {"nasbench1shot1-3", "maxpool3x3(99999999999999999999999)", "expected a vertex from 0 to 0"},
      {"nasbench1shot1-3", "maxpool3x3(-1)", "expected a vertex from 0 to 0, found '-1)'"},
      {"nasbench1shot1-3", "maxpool3x3(0,0)", "position 12: expected ')'"},
      {"nasbench1shot1-1", "maxpool3x3(0) maxpool3x3(0,0) maxpool3x3(0,1) maxpool3x3(0,1) output(0,1)",
       "cell, vertex 2: expected inputs from different vertices, found two from 0"},
      {"darts", "normal (", "position 7: expected ':'"},
      {"darts", darts.substr(0, darts.find("reduce")), "expected 'reduce', found its end"},
      {"darts", "normal: (sep_conv_3x3,2)", "expected a vertex from 0 to 1, found '2)'"},
      {"darts", "normal: (none,0)(sep_conv_3x3,1)" + darts.substr(40),
       "normal, vertex 2: expected an operation (max_pool_3x3, avg_pool_3x3"},
  };
  for (const Wrong& c : cases) {
    EXPECT_THAT(message([&] { parse_genotype(make_space(c.space), c.text); }), HasSubstr(c.says)) << c.text;
  }
}

TEST(GenotypeJson, SaysWhereAndWhatWasExpected) {
  const SearchSpace space = make_space("nasbench201");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "genotype JSON: byte 2"},
      {"[]", "genotype: expected an object, found an array"},
      {"{}", "expected a list \"cells\", found none"},
      {R"({"cells": 3})", "expected \"cells\" to be a list of at most 64, found 3"},
      {R"({"cells": [1]})", "cells[0]: expected an object, found 1"},
      {R"({"cells": [{"name": 4, "nodes": []}]})", "cells[0]: expected \"name\" to be a string, found 4"},
      {R"({"cells": [{"name": "cell", "nodes": []}]})", "cell: expected 3 nodes, found 0"},
      {R"({"cells": [{"nodes": [{"inputs": [{"from": 1.5}]}]}]})",
       "cells[0].nodes[0].inputs[0]: expected a whole number \"from\", found 1.5"},
      {R"({"cells": [{"nodes": [{"inputs": [{"from": 1e999}]}]}]})", "number overflow parsing '1e999'"},
      {R"({"cells": []})", "expected 1 cells (cell), found 0"},
      {R"({"space": "darts", "cells": []})", "expected space nasbench201, found 'darts'"},
      {std::string(1 << 17, ' '), "at most 65536 bytes"},
      {std::string(60'000, '['), "genotype JSON: byte"},
      // Nested too deep for anything that goes down one call a level, such as a copy.
      {R"({"cells": )" + std::string(32'000, '[') + std::string(32'000, ']') + "}",
       "cells[0]: expected an object, found an array"},
  };
  for (const auto& [json, says] : cases) {
    EXPECT_THAT(message([&, j = json] { genotype_from_json(space, j); }), HasSubstr(says))
        << json.substr(0, 80);
  }
}

TEST(ValidateGenotype, NamesWhatDoesNotBelong) {
  const SearchSpace space = make_space("nasbench201");
  Random random(4);
  const Genotype good = random_genotype(space, random);
  const auto says = [&](auto change) {
    Genotype changed = good;
    change(changed);
    return message([&] { validate_genotype(space, changed); });
  };
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].name = "normal"; }), HasSubstr("expected a cell 'cell'"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes.pop_back(); }), HasSubstr("expected 3 nodes, found 2"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes[2].inputs.pop_back(); }),
              HasSubstr("cell, vertex 3: expected 3 inputs, found 2"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes[1].inputs[0].from = 1; }), HasSubstr("in order"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes[1].inputs[1].from = -1; }),
              HasSubstr("cell, vertex 2: expected inputs from vertices 0 to 1, found -1"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes[1].operation = "x"; }), HasSubstr("on edges only"));
  EXPECT_THAT(says([](Genotype& g) { g.cells[0].nodes[1].inputs[0].operation = "x"; }),
              HasSubstr("expected an operation (none"));
  const SearchSpace shot = make_space("nasbench1shot1-1");
  Genotype nodes = random_genotype(shot, random);
  nodes.cells[0].nodes[1].inputs[0].operation = "maxpool3x3";
  EXPECT_THAT(message([&] { validate_genotype(shot, nodes); }), HasSubstr("on nodes only"));
  nodes.cells[0].nodes[1].inputs[0].operation = "";
  nodes.cells[0].nodes.back().operation = "maxpool3x3";
  EXPECT_THAT(message([&] { validate_genotype(shot, nodes); }), HasSubstr("'output', the last node"));
}

}  // namespace
}  // namespace bilevel::nas
