#pragma once
// Which numbers a field takes.

#include <string>

namespace bilevel {

// Bounds that many fields share.
namespace bounds {
// Lengths of loops. A loop of single steps can be interrupted and may be as long as a life; what happens
// within one step cannot, and may keep a state for each.
inline constexpr double endless = 1e12, within_step = 1e6;
// Sizes of what is held in memory: far above any use, and still refused by an allocation and not by a hang.
inline constexpr double examples = 1e9, width = 1e5, depth = 1000, side = 4096;
// What is only a factor: its product with another one is still a number, and itself a float.
inline constexpr double any = 1e30;
// LibTorch refuses numbers beyond the floats beside tensors of them.
inline constexpr double largest_float = 3.4028234663852886e38;
}  // namespace bounds

struct Range {
  double least = -bounds::any, most = bounds::any;
  bool without_least = false, without_most = false;

  bool holds(double value) const;
  // "at least 0 and below 1"; empty where every number will do. The bound that any factor has is worth a word
  // only to who is `beyond` it.
  std::string text(bool whole, bool beyond = false) const;
};
inline Range at_least(double least, double most = bounds::any) { return {least, most, false, false}; }
inline Range above(double least, double most = bounds::any) { return {least, most, true, false}; }
inline Range from_0_below_1() { return {0, 1, false, true}; }
inline Range between_0_and_1() { return {0, 1, true, true}; }

// Throws std::invalid_argument: "must be a whole number, at least 0".
void require_whole(const std::string& text, const Range& range);
void require_seed(const std::string& text);
void require_number(const std::string& text, const Range& range);

}  // namespace bilevel
