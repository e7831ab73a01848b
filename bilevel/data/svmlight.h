#pragma once
// Sparse examples as text in the format of SVMlight and LIBSVM, plain or compressed:
//   LABEL INDEX:VALUE INDEX:VALUE ... # comment

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/csr.h"

namespace bilevel {

enum class IndexBase { automatic, zero, one };

struct SvmlightOptions {
  // automatic: one, as the format says, unless an index 0 occurs in any of the files read together.
  IndexBase base = IndexBase::automatic;
  int64_t columns = 0;                  // 0: as many as the files read together show
  bool ignore_query_ids = false;        // qid:N belongs to ranking data and is refused unless told otherwise
  at::ScalarType dtype = at::kFloat;    // of the values; float or double
  int64_t largest_columns = 100000000;  // one absurd index would ask for a model of gigabytes
  int64_t largest_bytes = int64_t{1} << 33;  // of the text; a bound on what a compressed file may unpack to
  void validate() const;                     // throws std::invalid_argument
};

// What one svmlight file holds, before its labels become those of an ExampleSet.
struct LabelledSparse {
  SparseMatrix examples;
  Tensor labels;            // double, as written: labels.h turns them into classes
  int64_t first_index = 1;  // what the first column is called in the file: 0 or 1
};

// Throws std::runtime_error naming file and line for what is no number, not finite, out of order, repeated,
// or beyond the given columns.
LabelledSparse read_svmlight(const std::string& path, const SvmlightOptions& options = {});
// Files that belong together, as a training and a test set: one base and one number of columns.
std::vector<LabelledSparse> read_svmlight_files(const std::vector<std::string>& paths,
                                                const SvmlightOptions& options = {});

}  // namespace bilevel
