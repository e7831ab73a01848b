#pragma once
// The runs of an item's grids that have ended, each in a file of the run's folder: an item takes up to days,
// and one that was interrupted or killed continues with the runs that are missing.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "bilevel/check/packed_solve.h"

namespace bilevel::reproduce {

class FinishedRuns {
 public:
  // Stored in `folder`/finished; read only if the item is resumed.
  FinishedRuns(const std::string& folder, bool resumed, std::function<void(const std::string&)> warning);

  // An item makes its grids in the same order every time.
  size_t next_grid() { return grids_++; }
  // nullopt if the run has not ended, or if its file is damaged (with a warning).
  std::optional<Packed> find(size_t grid, size_t run) const;
  void keep(size_t grid, size_t run, const Packed& result) const;

 private:
  std::string path(size_t grid, size_t run) const;

  std::string folder_;
  bool resumed_;
  std::function<void(const std::string&)> warning_;
  size_t grids_ = 0;
};

}  // namespace bilevel::reproduce
