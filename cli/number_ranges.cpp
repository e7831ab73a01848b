#include "cli/number_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel::cli {
namespace {

// Lengths of loops. A loop of single steps can be interrupted and may be as long as a life; what happens
// within one step cannot, and may keep a state for each.
constexpr double endless = 1e12, within_step = 1e6;
// Sizes of what is held in memory: far above any use, and still refused by an allocation and not by a hang.
constexpr double examples = 1e9, width = 1e5, depth = 1000, side = 4096;
// What is only a factor: its product with another one is still a number, and itself a float.
constexpr double any = 1e30;
// LibTorch refuses numbers beyond the floats beside tensors of them.
constexpr double largest_float = std::numeric_limits<float>::max();

struct Range {
  std::string_view option;  // or "COMMAND OPTION", which comes first
  double least = -any, most = any;
  bool without_least = false, without_most = false;
};

Range positive(std::string_view option, double most = any) { return {option, 0, most, true, false}; }
Range fraction_below_1(std::string_view option) { return {option, 0, 1, false, true}; }

const std::vector<Range>& ranges() {
  static const std::vector<Range> table = {
      // the run
      {"--save-every", 0, any},
      {"--threads", 0, 1024},
      positive("--timeout"),
      {"--processes", 1, 1024},
      // the inner loop
      {"--inner-steps", 0, within_step},
      {"search --inner-steps", 1, within_step},
      positive("--inner-rate"),
      fraction_below_1("--inner-momentum"),
      {"--inner-clip", 0, any},
      {"--inner-batch", 0, examples},
      // the outer steps
      positive("--outer-rate"),
      fraction_below_1("--outer-momentum"),
      {"--outer-batch", 0, examples},
      {"--iterations", 0, endless},
      {"--budget-seconds", 0, any},
      {"--budget-calls", 0, endless},
      {"--tolerance", 0, any},
      {"--records", 1, within_step},
      {"learn --records", 0, within_step},
      // hypergradients
      {"--terms", 0, within_step},
      {"--truncate", 0, within_step},
      {"--damping", 0, any},
      {"--linear-rate", 0, any},
      {"--growth", 0, within_step},
      {"--accuracy", 0, 1, true, true},
      // single algorithms
      {"--strong-convexity", 0, any},
      {"--hessian-batch", 0, examples},
      positive("--momentum-decay", 1),
      positive("--averaging", 1),
      {"--period", 1, endless},
      {"--large-batch", 0, examples},
      positive("--penalty"),
      {"--penalty-growth", 0, any},
      {"--joint-rate", 0, any},
      positive("--barrier"),
      // problems and their data
      {"--weight-decay", 0, any},
      {"train --weight-decay", 0, largest_float},
      {"--regularization", 0, any},
      {"--corruption", 0, 1},
      {"--train-size", 0, examples},
      {"--valid-size", 0, examples},
      {"count --classes", 2, width},
      // images and networks
      {"--image-size", 0, side},
      {"--images", 1, width},
      {"--input-channels", 1, width},
      {"--channels", 0, width},
      {"--cells", 0, depth},
      {"--crop-padding", 0, side},
      {"--cutout", 0, side},
      // search
      {"--epochs", 0, endless},
      {"--warmup-epochs", 0, endless},
      {"--batch", 1, examples},
      {"--alpha-steps", 0, endless},
      {"--samples", 1, endless},
      positive("--temperature"),
      positive("--final-temperature"),
      {"--final-rate", 0, any},
      fraction_below_1("--momentum"),
      positive("--alpha-rate"),
      fraction_below_1("--alpha-beta1"),
      fraction_below_1("--alpha-beta2"),
      {"--alpha-decay", 0, any},
      {"--stop-window", 1, endless},
      {"--stop-ratio", 0, 1, true, true},
      {"--most-skips", 0, endless},
      {"--guard-strength", 0, 1e6},
      {"--tune-epochs", 0, endless},
      {"--eigenvalue-products", 0, within_step},
      {"--score-images", 0, examples},
      // train
      {"train --epochs", 1, endless},
      {"train --batch", 2, examples},
      positive("--rate", largest_float),
      {"--warmup", 0, any},
      {"--clip", 0, any},
      fraction_below_1("--drop-path"),
      {"--auxiliary", 0, any},
      fraction_below_1("--label-smoothing"),
      // learn
      {"--ways", 2, 10000},
      {"--shots", 1, 10000},
      {"--queries", 1, 10000},
      {"--filters", 1, side},
      {"--ridge", 0, any},
      positive("--proximal"),
      positive("--centre-weight"),
      {"--meta-batch", 1, width},
      {"--valid-tasks", 1, endless},
      {"--test-tasks", 1, endless},
      // lists
      {"--random", 0, width},
      {"--best", 1, width},
      // of these the command says more itself
      {"reproduce --seeds", -any, endless},
      {"reproduce --epochs", -any, endless},
  };
  return table;
}

// nullopt: a field table has it.
std::optional<Range> range_of(const std::string& command, const std::string& option) {
  const auto named = [&](const std::string& name) {
    return std::find_if(ranges().begin(), ranges().end(), [&](const Range& r) { return r.option == name; });
  };
  if (const auto own = named(command + " " + option); own != ranges().end()) return *own;
  if (const auto shared = named(option); shared != ranges().end()) return *shared;
  return std::nullopt;
}

// The bound that any factor has is worth a word only to who is beyond it.
std::string text_of(const Range& r, bool whole, bool beyond) {
  const auto number = [&](double bound) {
    return whole ? fmt::format("{:.0f}", bound) : fmt::format("{:.2g}", bound);
  };
  std::string text;
  if (r.least > -any || beyond) text = (r.without_least ? "above " : "at least ") + number(r.least);
  if (r.most == any && !beyond) return text;
  return text + (text.empty() ? "" : " and ") + (r.without_most ? "below " : "at most ") + number(r.most);
}

bool holds(const Range& r, double value) {
  return (r.without_least ? value > r.least : value >= r.least) &&
         (r.without_most ? value < r.most : value <= r.most);
}

std::string kind_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find_first_of(": "));
}

// CLI11 reads 010 as eight, -1 as the largest seed, and what is too large as the largest there is.
bool is_seed(const std::string& text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!digits || (text.size() > 1 && text.front() == '0')) return false;
  errno = 0;
  (void)std::strtoull(text.c_str(), nullptr, 10);
  return errno == 0;
}

bool is_whole(const std::string& text) {
  const std::string digits = text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
  return !digits.empty() && (digits.size() == 1 || digits.front() != '0') &&
         std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

void require(const std::string& option, const std::string& kind, const Range& range,
             const std::string& text) {
  // A ConversionError: CLI11 would put the option's name before a ValidationError once more.
  const auto refuse = [&](const std::string& bound) {
    throw CLI::ConversionError(fmt::format("{} {}: must be {}", option, text, bound));
  };
  if (kind == "UINT") {
    if (!is_seed(text)) refuse(fmt::format("a whole number, 0 to {}", std::numeric_limits<uint64_t>::max()));
    return;
  }
  const bool whole = kind == "INT";
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && *end == '\0' && (whole ? is_whole(text) : std::isfinite(value));
  const std::string bounds = text_of(range, whole, std::isfinite(value) && std::abs(value) > any);
  if (!number) refuse((whole ? "a whole number" : "a finite number") + (bounds.empty() ? "" : ", " + bounds));
  if (!holds(range, value)) refuse(bounds);
}

void check_commands(CLI::App& app, const std::string& command) {
  for (CLI::Option* option : app.get_options()) {
    if (!takes_number(*option)) continue;
    const std::string name = option->get_name(), kind = kind_of(*option);
    const std::optional<Range> row = range_of(command, name);
    if (!row && kind != "UINT") continue;
    const Range range = row.value_or(Range{});
    // A transform comes before the option's other checks, whose messages are CLI11's.
    option->transform([name, kind, range](const std::string& text) {
      require(name, kind, range, text);
      return text;
    });
  }
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    check_commands(*sub, sub->get_name().empty() ? command : sub->get_name());  // a group has no name
  }
}

}  // namespace

bool takes_number(const CLI::Option& option) {
  const std::string kind = kind_of(option);
  return option.get_expected_max() > 0 && (kind == "INT" || kind == "UINT" || kind == "FLOAT");
}

void check_number_ranges(CLI::App& program) { check_commands(program, ""); }

}  // namespace bilevel::cli
