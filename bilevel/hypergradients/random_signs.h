#pragma once
// Random directions of +1 and -1 for many unknowns, kept as one bit an entry: at a million unknowns, ten of
// them as numbers would be 40 MB that are written once and read three times. Internal to hypergradients/.
//
// For vectors on the CPU that are contiguous and of one type, float or double. Sums go by pieces of fixed
// length, added in order in double: the same bits for any number of threads.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel::detail {

class RandomSigns {
 public:
  RandomSigns(int64_t count, int64_t size, uint64_t seed);

  void write(int64_t row, Tensor& vector) const;

  // Q the rows of signs, Y the given rows, as many: both products from one reading of Y.
  struct Products {
    Tensor signs_rows;  // Q Y', double
    Tensor rows_rows;   // Y Y', double
  };
  Products products(const std::vector<Tensor>& rows) const;

 private:
  template <class T>
  void expand(int64_t row, int64_t first, int64_t last, T* to) const;

  int64_t size_, words_;  // words_ a row
  std::vector<uint64_t> bits_;
};

// Y p, and sum + Y'c, with Y by rows and each read once.
Tensor rows_times(const std::vector<Tensor>& rows, const Tensor& p);
void add_rows_(Tensor& sum, const std::vector<Tensor>& rows, const Tensor& coefficients);

}  // namespace bilevel::detail
