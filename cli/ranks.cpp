#include "cli/ranks.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/errors.h"
#include "bilevel/fields/option_text.h"
#include "cli/common.h"

namespace bilevel::cli {
namespace {

constexpr std::array<std::string_view, 9> for_ranks = {"solve", "clean", "tune",    "interact", "search",
                                                       "train", "learn", "compare", "reproduce"};

struct Failure {
  std::string text = {};
  int exit_code = failure;
};

// As the program says them when it is alone.
Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const NotFiniteError& e) {
    return {flag_text(marked_message(e)), not_finite};
  } catch (const OptionError& e) {
    return {flag_text(e.marked()), bad_input};
  } catch (const RunError& e) {
    return {flag_text(e.marked()), failure};
  } catch (const std::invalid_argument& e) {
    return {e.what(), bad_input};
  } catch (const c10::Error& e) {
    return {e.what_without_backtrace(), failure};
  } catch (const std::bad_alloc&) {
    return {"out of memory: try a smaller problem, more machines or --dtype float", failure};
  } catch (const std::exception& e) {
    return {e.what(), failure};
  }
}

int say_failure(const RankFailure& failed) {
  if (failed.is_first()) fmt::print(stderr, "bilevel: {}\n", failed.what());
  return failed.facts().exit_code;
}

}  // namespace

void require_command_for_ranks(const std::string& command) {
  const RankPlace place = rank_from_environment();
  if (place.alone() || std::find(for_ranks.begin(), for_ranks.end(), command) != for_ranks.end()) return;
  throw std::invalid_argument(
      fmt::format("{} started {} processes of `bilevel {}`, each of which would do all the work: only {} "
                  "divide their work; start one process",
                  place.launcher, place.size, command, fmt::join(for_ranks, ", ")));
}

int run_ranked(const GroupOptions& options, const Given& given, const RankedWork& work) {
  const RankPlace place = rank_from_environment();
  if (place.alone()) {
    const bool backend = given(options.backend), timeout = given(options.timeout);
    if (place.launcher.empty() && (backend || timeout)) {
      throw OptionError(fmt::format(
          "{}: there is only one process; start several with `bilevel launch`, mpirun, srun or torchrun",
          named(backend ? "backend" : "timeout")));
    }
    if (!backend) return work(nullptr);  // a launcher's only process has nobody to wait for
  }
  std::shared_ptr<ProcessGroup> group;
  try {
    group = ProcessGroup::join(place, options);
    return work(group);
  } catch (const RankFailure& failed) {
    return say_failure(failed);
  } catch (...) {
    if (!group) throw;
    const Failure own = failure_of(std::current_exception());
    if (!group->fail(own.text, own.exit_code)) return own.exit_code;
    fmt::print(stderr, "bilevel: {}: {}\n", group->name_of(group->rank()), own.text);
    return own.exit_code;
  }
}

}  // namespace bilevel::cli
