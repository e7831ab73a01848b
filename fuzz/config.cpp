// Options from a file: a run's config.json, other JSON, or TOML.
#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"
#include "cli/stored_options.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

// A job with options of every kind.
struct Options {
  double rate = 0;
  int64_t steps = 0;
  uint64_t seed = 0;
  bool exact = false;
  std::string name = "one";
  std::vector<int> sizes = {};
  int threads = 0;
  Given given = {};
  static const Fields<Options>& fields() {
    static const Fields<Options> table = [] {
      Fields<Options> f;
      f.add(
           "rate", [](auto& o) -> auto& { return o.rate; }, "a positive number")
          .in(above(0));
      f.add(
           "steps", [](auto& o) -> auto& { return o.steps; }, "a whole number")
          .in(at_least(0, 100));
      f.add(
          "seed", [](auto& o) -> auto& { return o.seed; }, "any seed");
      f.add(
          "exact", [](auto& o) -> auto& { return o.exact; }, "a flag");
      f.add(
           "name", [](auto& o) -> auto& { return o.name; }, "a choice")
          .one_of({"one", "two"});
      f.add(
           "sizes", [](auto& o) -> auto& { return o.sizes; }, "a list")
          .in(at_least(0, 1000));
      f.add(
           "threads", [](auto& o) -> auto& { return o.threads; }, "where it runs")
          .in(at_least(0, 1024))
          .is(FieldKind::place);
      return f;
    }();
    return table;
  }
};

int give_config(std::string_view bytes) {
  Options options;
  cli::ProcessOptions process;
  process.config = path_of(bytes);
  return taken<std::invalid_argument>([&] {
    cli::take_stored_options("solve", OptionsView(options), process);
    require(options.rate >= 0 && options.steps >= 0 && options.steps <= 100,
            "config: an option beyond its bound");
    require(options.name == "one" || options.name == "two", "config: a choice that there is not");
    require(process.resume.empty(), "config: a file chooses the run");
    // What was taken is stored, and taken again.
    Options again;
    give_rest(OptionsView(again), words_of(OptionsView(options).given_json()));
    require(OptionsView(again).given_json() == OptionsView(options).given_json(),
            "config: another value when it is read again");
  });
}

const Register config_target("config", give_config);

}  // namespace
}  // namespace bilevel::fuzz
