// The table of AlgorithmSettings. Bounds come from the algorithms' own tables, and so does the help of an
// option that only a few of them have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/registry.h"

namespace bilevel {
namespace {

constexpr size_t few = 4;

struct Readers {
  std::vector<std::string> names;
  Field field;  // as the first of them has it
};

Readers readers_of(const std::string& option) {
  Readers found;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (!row.options.has(option)) continue;
    if (found.names.empty()) found.field = find_field(row.options.fields(), option);
    found.names.push_back(row.name);
  }
  return found;
}

class Table {
 public:
  using O = AlgorithmSettings;
  template <typename Member>
  Field& add(const std::string& name, Member member, const std::string& help = "") {
    Field& field = f_.add(name, member, help);
    const Readers readers = readers_of(name);
    field.like(readers.field);
    if (readers.names.size() <= few) {
      field.help = fmt::format("{}: {}", fmt::join(readers.names, ", "), help.empty() ? field.help : help);
    } else if (!help.empty()) {
      field.help = help;
    }
    return field;
  }
  void heading(const char* text) { f_.heading(text); }
  Fields<O> done() { return std::move(f_); }

 private:
  Fields<O> f_;
};

}  // namespace

const Fields<AlgorithmSettings>& AlgorithmSettings::fields() {
  static const Fields<AlgorithmSettings> table = [] {
    using O = AlgorithmSettings;
    Table f;
    f.heading("algorithm");
    f.add(
        "method", [](O & o) -> auto& { return o.method; },
        "estimator of the hypergradient; auto: what `bilevel diagnose` recommends");
    f.add(
        "terms", [](O & o) -> auto& { return o.hypergradient.terms; },
        "K: Hessian products in a series, steps of CG, Q of stocbio");
    f.add(
        "truncate", [](O & o) -> auto& { return o.hypergradient.truncate; });
    f.add(
        "linear_rate", [](O & o) -> auto& { return o.linear_rate; },
        "linear rate, of series and of v in single-loop algorithms; 0 = the inner rate");
    f.add(
        "linear_schedule", [](O & o) -> auto& { return o.linear_schedule; },
        fmt::format("how the linear rate falls: {}", schedule_words));
    f.add(
        "growth", [](O & o) -> auto& { return o.growth; });
    f.add(
        "damping", [](O & o) -> auto& { return o.hypergradient.curvature.damping; },
        "damping rho in H + rho I, for algorithms that solve a linear system");
    f.add(
        "curvature", [](O & o) -> auto& { return o.hypergradient.curvature.kind; });
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.hypergradient.curvature.difference_cross; });
    f.add(
        "error_bound", [](O & o) -> auto& { return o.with_bound; },
        "double loops: bound every hypergradient's distance from the exact one (docs/bounds.md)");
    f.heading("settings of particular algorithms");
    f.add(
        "strong_convexity", [](O & o) -> auto& { return o.strong_convexity; },
        "mu, which sets how fast stocbio's Hessian batches shrink (0 = all the same size) and the value to "
        "which stable raises H's eigenvalues (0 = a thousandth of the largest)");
    f.add(
        "hessian_batch", [](O & o) -> auto& { return o.hessian_batch; });
    f.add(
        "momentum_decay", [](O & o) -> auto& { return o.momentum_decay; });
    f.add(
        "averaging", [](O & o) -> auto& { return o.averaging; });
    f.add(
        "period", [](O & o) -> auto& { return o.period; });
    f.add(
        "large_batch", [](O & o) -> auto& { return o.large_batch; });
    f.add(
        "penalty", [](O & o) -> auto& { return o.penalty; });
    f.add(
        "penalty_growth", [](O & o) -> auto& { return o.penalty_growth; });
    f.add(
        "joint_rate", [](O & o) -> auto& { return o.joint_rate; },
        "rate of w's steps; 0 = the outer rate; default in solve and compare: a tenth of the inner rate");
    f.add(
        "barrier", [](O & o) -> auto& { return o.barrier; });
    f.heading("inner loop");
    f.add(
        "inner_steps", [](O & o) -> auto& { return o.inner.steps; });
    f.add(
        "inner_rate", [](O & o) -> auto& { return o.inner.rate; },
        "rate of the inner steps; default: from the problem's curvature");
    f.add(
        "inner_optimizer", [](O & o) -> auto& { return o.inner.optimizer; },
        "inner optimiser, for algorithms with an inner loop: gd, heavy-ball, nesterov or adam");
    f.add(
        "inner_momentum", [](O & o) -> auto& { return o.inner.momentum; });
    f.add(
        "inner_clip", [](O & o) -> auto& { return o.inner.clip_norm; },
        "clip inner gradients to this norm, for algorithms with an inner loop; 0 = no clipping");
    f.add(
        "inner_schedule", [](O & o) -> auto& { return o.inner.schedule; },
        fmt::format("how the inner rate falls: {}", schedule_words));
    f.heading("outer steps");
    f.add(
        "outer_rate", [](O & o) -> auto& { return o.outer.rate; },
        "rate of the outer steps; default: chosen by the command");
    f.add(
        "outer_optimizer", [](O & o) -> auto& { return o.outer.optimizer; });
    f.add(
        "outer_momentum", [](O & o) -> auto& { return o.outer.momentum; });
    f.add(
        "outer_schedule", [](O & o) -> auto& { return o.outer.schedule; },
        fmt::format("how the outer rate falls: {}", schedule_words));
    return f.done();
  }();
  return table;
}

}  // namespace bilevel
