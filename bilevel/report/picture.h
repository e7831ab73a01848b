#pragma once
// Graphs as pictures, by graphviz's program as a process of its own (its library leaks).

#include <string>

namespace bilevel {

bool can_draw();  // the program is here
// `format`: svg, png or pdf. Throws std::runtime_error that names the package where the program is missing.
std::string picture_of(const std::string& graph, const std::string& format);

}  // namespace bilevel
