#include "bilevel/data/search_split.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/byte_source.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/splits.h"

namespace bilevel {
namespace {

using Json = nlohmann::json;
using Positions = std::vector<int64_t>;

// A split of ImageNet takes 14 MB. Parsed, a short number takes eight times its text, and an empty list more:
// hence a bound on the levels, too, of which the longer of the two forms has three.
constexpr int64_t largest_split_file = int64_t{1} << 25;
constexpr int most_levels = 8;

Tensor as_tensor(const Positions& list) { return at::tensor(list, at::TensorOptions().dtype(at::kLong)); }

std::string shown(const Json& value) {
  if (value.is_structured()) return value.type_name();  // its text may nest deeper than the stack is
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + " ..." : text;
}

int64_t position_of(const std::string& path, const Json& value, std::string_view list, size_t entry,
                    int64_t images) {
  int64_t position = -1;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
    if (error != std::errc() || end != text.data() + text.size()) position = -1;
  } else if (value.is_number_unsigned()) {
    position = static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
  }
  if (position < 0 || position >= images) {
    line_error(path, 0, fmt::format("in \"{}\" positions from 0 to {}", list, images - 1),
               fmt::format("{} as entry {}", shown(value), entry), "does the split belong to another set?");
  }
  return position;
}

Positions positions_in(const std::string& path, const Json& file, const char* list, int64_t images) {
  const auto found = file.is_object() ? file.find(list) : file.end();
  const Json* entries = file.is_object() && found != file.end() ? &*found : nullptr;
  // NAS-Bench-201's form says the type of the list's entries first.
  if (entries != nullptr && entries->is_array() && entries->size() == 2 && (*entries)[0].is_string() &&
      (*entries)[1].is_array()) {
    entries = &(*entries)[1];
  }
  if (entries == nullptr || !entries->is_array() || entries->empty()) {
    line_error(path, 0, fmt::format("a list \"{}\" of positions", list),
               entries == nullptr ? "none" : shown(*entries),
               "a split is {\"train\": [0, ...], \"valid\": [1, ...]}");
  }
  Positions result;
  result.reserve(entries->size());
  for (size_t i = 0; i < entries->size(); ++i) {
    result.push_back(position_of(path, (*entries)[i], list, i, images));
  }
  return result;
}

// As many of each class as can be had in both lists, equally shared: a class that has fewer gives all it can,
// and the others fill up.
Positions equal_shares(int64_t size, const Positions& pairs) {
  Positions shares(pairs.size());
  for (int64_t left = size; left > 0;) {
    Positions open;
    for (size_t k = 0; k < pairs.size(); ++k) {
      if (shares[k] < pairs[k]) open.push_back(static_cast<int64_t>(k));
    }
    const int64_t each = std::max<int64_t>(left / static_cast<int64_t>(open.size()), 1);
    for (const int64_t class_number : open) {
      const auto k = static_cast<size_t>(class_number);
      const int64_t more = std::min({each, pairs[k] - shares[k], left});
      shares[k] += more;
      left -= more;
    }
  }
  return shares;
}

std::vector<Positions> by_class(const Tensor& labels, int64_t classes, const Tensor& positions) {
  std::vector<Positions> pools(static_cast<size_t>(classes));
  const int64_t* label = labels.data_ptr<int64_t>();
  const int64_t* position = positions.data_ptr<int64_t>();
  for (int64_t i = 0; i < positions.numel(); ++i) {
    pools[static_cast<size_t>(label[position[i]])].push_back(position[i]);
  }
  return pools;
}

void shuffle_positions(Positions& list, Random& random) {
  for (size_t i = list.size(); i > 1; --i) {
    std::swap(list[i - 1], list[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

// `size` of each list, the same number of each class in both.
SearchSplit smaller(const Tensor& labels, int64_t classes, const SearchSplit& split, int64_t size,
                    uint64_t seed) {
  std::vector<Positions> train = by_class(labels, classes, split.train);
  std::vector<Positions> valid = by_class(labels, classes, split.valid);
  Positions pairs;
  for (size_t k = 0; k < train.size(); ++k) {
    pairs.push_back(static_cast<int64_t>(std::min(train[k].size(), valid[k].size())));
  }
  const int64_t most = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
  if (size > most) {
    throw std::invalid_argument(fmt::format(
        "train_size = {}: must be at most {}, as {} images in two lists with the same number of each class "
        "allow no more",
        size, most, split.train.numel() + split.valid.numel()));
  }
  const Positions shares = equal_shares(size, pairs);
  Random random(named_seed(seed, "search split"));
  const auto take = [&](std::vector<Positions>& pools) {
    Positions list;
    for (size_t k = 0; k < pools.size(); ++k) {
      shuffle_positions(pools[k], random);
      list.insert(list.end(), pools[k].begin(), pools[k].begin() + shares[k]);
    }
    shuffle_positions(list, random);
    return as_tensor(list);
  };
  SearchSplit result;
  result.train = take(train);
  result.valid = take(valid);
  return result;
}

}  // namespace

void SearchSplitOptions::validate() const {
  if (train_size < 0) {
    throw std::invalid_argument(
        fmt::format("train_size = {}: must be at least 0, where 0 is half and half", train_size));
  }
}

SearchSplit read_search_split(const std::string& path, int64_t images) {
  const auto shallow = [&](int level, Json::parse_event_t, Json&) {
    if (level > most_levels) {
      line_error(path, 0, fmt::format("lists at most {} levels deep", most_levels), "deeper ones",
                 "a split is {\"train\": [0, ...], \"valid\": [1, ...]}");
    }
    return true;
  };
  const Json file = Json::parse(read_file(path, largest_split_file), shallow, false);
  if (file.is_discarded()) {
    line_error(path, 0, "JSON", "something else", "a split is {\"train\": [0, ...], \"valid\": [1, ...]}");
  }
  const std::array names{"train", "valid"};
  std::array<Positions, 2> lists;
  std::vector<int> owner(static_cast<size_t>(images), -1);
  for (int part = 0; part < 2; ++part) {
    const auto p = static_cast<size_t>(part);
    lists[p] = positions_in(path, file, names[p], images);
    for (const int64_t position : lists[p]) {
      int& held = owner[static_cast<size_t>(position)];
      if (held >= 0) {
        line_error(path, 0, "every position once",
                   held == part ? fmt::format("{} twice in \"{}\"", position, names[p])
                                : fmt::format("{} in \"train\" and in \"valid\"", position),
                   "the split would validate on what it trains on, or weigh images unequally");
      }
      held = part;
    }
  }
  return {as_tensor(lists[0]), as_tensor(lists[1])};
}

SearchSplit make_search_split(const Tensor& labels, int64_t classes, const SearchSplitOptions& options) {
  options.validate();
  check_labels(labels, classes, false, "search split");
  const Tensor here = labels.to(at::kCPU).contiguous();
  const int64_t count = here.numel();
  if (count < 2) throw std::invalid_argument(fmt::format("{} images: a search needs two at least", count));
  SearchSplit split;
  if (options.file.empty()) {
    const Splits halves =
        make_splits(here, classes, {count / 2, count - count / 2, 0}, Balance::proportional, options.seed);
    split = {halves.train, halves.valid};
  } else {
    split = read_search_split(options.file, count);
  }
  if (options.train_size == 0) return split;
  return smaller(here, classes, split, options.train_size, options.seed);
}

}  // namespace bilevel
