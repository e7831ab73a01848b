// Genotypes as JSON. Whatever the text holds, the only exception is std::invalid_argument.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bilevel/nas/genotype.h"

namespace bilevel::nas {
namespace {

using Json = nlohmann::ordered_json;

// A genotype takes a few kilobytes. An object of this kind finds a key by looking at all it has, so that a
// long text of many keys would take for ever.
constexpr size_t longest_text = size_t{1} << 16;
constexpr size_t most_parts = 64;  // cells, nodes or inputs in one place

[[noreturn]] void fail(std::string_view where, std::string_view expected, std::string_view found) {
  throw std::invalid_argument(
      fmt::format("genotype JSON: {}: expected {}, found {}", where, expected, found));
}

std::string shown(const Json& value) {
  const std::string text = value.is_structured() ? fmt::format("an {}", value.type_name())
                                                 : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

const Json& list_in(const Json& object, const char* key, std::string_view where) {
  if (!object.is_object()) fail(where, "an object", shown(object));
  const auto found = object.find(key);
  if (found == object.end()) fail(where, fmt::format("a list \"{}\"", key), "none");
  if (!found->is_array() || found->size() > most_parts) {
    fail(where, fmt::format("\"{}\" to be a list of at most {}", key, most_parts), shown(*found));
  }
  return *found;
}

std::string text_in(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  if (!found->is_string()) fail(where, fmt::format("\"{}\" to be a string", key), shown(*found));
  return found->get<std::string>();
}

GenotypeInput read_input(const Json& json, const std::string& where) {
  if (!json.is_object()) fail(where, "an object", shown(json));
  const auto from = json.find("from");
  if (from == json.end() || !from->is_number_integer()) {
    fail(where, "a whole number \"from\"", from == json.end() ? "none" : shown(*from));
  }
  return {from->get<int64_t>(), text_in(json, "operation", where)};
}

}  // namespace

Genotype genotype_from_json(const SearchSpace& space, std::string_view json) {
  if (json.size() > longest_text) {
    fail("text", fmt::format("at most {} bytes", longest_text), std::to_string(json.size()));
  }
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Json::parse_error& error) {
    throw std::invalid_argument(fmt::format("genotype JSON: byte {}: {}", error.byte, error.what()));
  } catch (const Json::exception& error) {  // a number that no double holds
    throw std::invalid_argument(fmt::format("genotype JSON: {}", error.what()));
  }
  Genotype genotype;
  // References all the way: a copy of what is nested deep would overflow the stack.
  const Json& cells = list_in(parsed, "cells", "genotype");
  genotype.space = parsed.contains("space") ? text_in(parsed, "space", "genotype") : space.name;
  for (const Json& cell : cells) {
    const std::string cell_at = fmt::format("cells[{}]", genotype.cells.size());
    const Json& nodes = list_in(cell, "nodes", cell_at);
    CellGenotype& read = genotype.cells.emplace_back();
    read.name = text_in(cell, "name", cell_at);
    for (const Json& node : nodes) {
      const std::string node_at = fmt::format("{}.nodes[{}]", cell_at, read.nodes.size());
      const Json& inputs = list_in(node, "inputs", node_at);
      GenotypeNode& read_node = read.nodes.emplace_back();
      read_node.operation = text_in(node, "operation", node_at);
      for (const Json& input : inputs) {
        read_node.inputs.push_back(
            read_input(input, fmt::format("{}.inputs[{}]", node_at, read_node.inputs.size())));
      }
      if (space.kind == SpaceKind::nasbench1shot1) {  // parents are a set; the text form lists them so
        std::sort(read_node.inputs.begin(), read_node.inputs.end(),
                  [](const auto& a, const auto& b) { return a.from < b.from; });
      }
    }
  }
  validate_genotype(space, genotype);
  return genotype;
}

std::string genotype_json(const Genotype& genotype) {
  Json cells = Json::array();
  for (const CellGenotype& cell : genotype.cells) {
    Json nodes = Json::array();
    for (const GenotypeNode& node : cell.nodes) {
      Json inputs = Json::array();
      for (const GenotypeInput& input : node.inputs) {
        Json one = {{"from", input.from}};
        if (!input.operation.empty()) one["operation"] = input.operation;
        inputs.push_back(std::move(one));
      }
      Json one = Json::object();
      if (!node.operation.empty()) one["operation"] = node.operation;
      one["inputs"] = std::move(inputs);
      nodes.push_back(std::move(one));
    }
    cells.push_back({{"name", cell.name}, {"nodes", std::move(nodes)}});
  }
  return Json{{"space", genotype.space}, {"cells", std::move(cells)}}.dump();
}

}  // namespace bilevel::nas
