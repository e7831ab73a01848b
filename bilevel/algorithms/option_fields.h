#pragma once
// Rows of field tables that the options of many algorithms share: those of the inner loop, the outer steps
// and the curvature that they take, under the names that users give them.

#include <string>

#include "bilevel/core/inner.h"
#include "bilevel/core/outer.h"
#include "bilevel/core/schedule.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

// As one word: "cosine", or "power:0.4" for (step + 1)^-0.4.
std::string word_of(const Schedule& schedule);
void read_word(const std::string& word, Schedule& schedule);
extern const char* const schedule_words;  // what may be given for one

// inner_steps, inner_rate, inner_optimizer, inner_momentum, inner_clip, inner_schedule.
const Fields<InnerOptions>& inner_fields();
// outer_rate, outer_optimizer, outer_momentum, outer_schedule.
const Fields<OuterOptions>& outer_fields();
// The matrix of algorithms that take its products as they are: curvature and damping.
const Fields<CurvatureOptions>& matrix_fields();

// Single rows, of structs that have no InnerOptions.
template <typename Options, typename Member>
void add_inner_rate(Fields<Options>& f, Member member) {
  f.add("inner_rate", member, "rate of the inner steps").in(above(0)).by_rule().first();
}
template <typename Options, typename Member>
void add_inner_steps(Fields<Options>& f, Member member) {
  f.add("inner_steps", member, "T: inner steps").in(at_least(0, bounds::within_step)).by_rule().first();
}
template <typename Options, typename Member>
void add_terms(Fields<Options>& f, Member member) {
  f.add("terms", member, "K: number of Hessian products").in(at_least(0, bounds::within_step)).first();
}
template <typename Options, typename Member>
void add_linear_rate(Fields<Options>& f, Member member) {
  f.add("linear_rate", member, "linear rate, of the series or of v's steps; 0 = the inner rate")
      .in(at_least(0));
}

// Of SOBA and its kin: one step of w and one of v at a time, each with its rate and schedule.
template <typename O>
void add_single_loop_fields(Fields<O>& f) {
  add_inner_rate(
      f, [](O & o) -> auto& { return o.inner_rate; });
  f.add(
      "inner_schedule", [](O & o) -> auto& { return o.inner_schedule; }, schedule_words);
  add_linear_rate(
      f, [](O & o) -> auto& { return o.linear_rate; });
  f.add(
      "linear_schedule", [](O & o) -> auto& { return o.linear_schedule; }, schedule_words);
  f.include(
      [](O & o) -> auto& { return o.curvature; }, matrix_fields());
}

}  // namespace bilevel
