#pragma once
// The losses that a regression on a table can minimise.

namespace bilevel {

enum class TableLoss { cross_entropy, squared };

}  // namespace bilevel
