#pragma once
// What scikit-learn does to a post of 20 Newsgroups, on latin-1 bytes: so that our 101,631 features are the
// papers' 101,631 features. Dropping goes in the order header, footer, quotes.

#include <functional>
#include <string>
#include <string_view>

namespace bilevel {

std::string_view without_header(std::string_view text);  // what follows the first empty line
// What precedes the last line that is blank but for dashes, unless that is the first line.
std::string_view without_footer(std::string_view text);
std::string without_quotes(std::string_view text);  // drops lines that quote or introduce a quotation

// Calls `use` with each run of two or more letters, digits and underscores, lower-cased. Letters and digits
// are those of Python's \w among the 256 characters.
void for_each_token(std::string_view text, const std::function<void(const std::string&)>& use);

std::string latin1_to_utf8(std::string_view text);

}  // namespace bilevel
