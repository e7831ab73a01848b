#pragma once
// Which fields of an options struct were given, rather than left at their defaults. It is a member of the
// struct, and knows a field by where it lies from here: so a copy of the options has the same fields given,
// and the compiler checks the names.
//
//     struct CleanOptions { double threshold = 0.5; Given given; };
//     if (options.given(options.threshold)) ...

#include <cstddef>
#include <set>

namespace bilevel {

class Given {
 public:
  template <typename Field>
  bool operator()(const Field& field) const {
    return has(&field);
  }
  template <typename Field>
  void mark(const Field& field) {
    mark_at(&field);
  }
  // As if it had not been given.
  template <typename Field>
  void forget(const Field& field) {
    forget_at(&field);
  }
  // Sets a field as if its user had given it.
  template <typename Field, typename Value>
  void set(Field& field, Value&& value) {
    field = static_cast<Value&&>(value);
    mark_at(&field);
  }

  bool has(const void* field) const { return places_.contains(place(field)); }
  void mark_at(const void* field) { places_.insert(place(field)); }
  void forget_at(const void* field) { places_.erase(place(field)); }

 private:
  std::ptrdiff_t place(const void* field) const {
    return static_cast<const char*>(field) - reinterpret_cast<const char*>(this);
  }
  std::set<std::ptrdiff_t> places_;
};

}  // namespace bilevel
