#pragma once
// Text that names options. The library calls them by their fields (inner_rate = 5), a command line by its
// flags (--inner-rate 5): whoever shows the text decides. So names are marked in it, and rendered last.

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bilevel {

std::string named(const std::string& field);                            // inner_rate, --inner-rate
std::string named(const std::string& field, const std::string& value);  // inner_rate = 5, --inner-rate 5

std::string plain_text(const std::string& marked);  // as the library says it
std::string flag_text(const std::string& marked);   // as on a command line
std::string flag_of(const std::string& field);      // "inner_rate" -> "--inner-rate"

// Why an option that would be ignored is refused, for an OptionError: "truncate has no effect with itd; only
// krmd and double-loop use it. Leave it out". `with` may be empty, where nothing has been chosen yet.
std::string no_effect(const std::string& option, const std::string& with,
                      const std::vector<std::string>& users = {});

// An exception whose message names options; what() is plain_text().
class WithMarkedMessage {
 public:
  explicit WithMarkedMessage(std::string marked) : marked_(std::move(marked)) {}
  virtual ~WithMarkedMessage() = default;
  const std::string& marked() const { return marked_; }

 private:
  std::string marked_;
};
// A mistake in an option.
class OptionError : public std::invalid_argument, public WithMarkedMessage {
 public:
  explicit OptionError(const std::string& marked)
      : std::invalid_argument(plain_text(marked)), WithMarkedMessage(marked) {}
};
// The options are right, but something outside is not: a file, a run.
class RunError : public std::runtime_error, public WithMarkedMessage {
 public:
  explicit RunError(const std::string& marked)
      : std::runtime_error(plain_text(marked)), WithMarkedMessage(marked) {}
};

// For what a second reader of the message adds: "config file.json: inner_rate = 0: must be above 0".
std::string marked_message(const std::exception& error);

}  // namespace bilevel
