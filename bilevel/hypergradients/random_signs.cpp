#include "bilevel/hypergradients/random_signs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "bilevel/core/random.h"

namespace bilevel::detail {
namespace {

constexpr int64_t bits_a_word = 64;
constexpr int64_t block = 1024;  // columns at once, whole words of signs; ten rows of them stay in the cache

template <class Function>
void for_number_type(const Tensor& t, const Function& function) {
  t.scalar_type() == at::kFloat ? function(float()) : function(double());
}

template <class T>
std::vector<T*> pointers(const std::vector<Tensor>& rows) {
  std::vector<T*> result;
  for (const Tensor& row : rows) result.push_back(row.data_ptr<T>());
  return result;
}

template <class T>
double dot(const T* a, const T* b, int64_t size) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return static_cast<double>(sum);
}

// function(first, last, sums) for every block of 0 .. size; what it leaves in its `count` sums is added in
// order.
template <class Function>
Tensor sum_over_blocks(int64_t size, int64_t count, const Function& function) {
  const int64_t blocks = (size + block - 1) / block;
  const Tensor sums = at::zeros({blocks, count}, at::kDouble);
  double* const data = sums.data_ptr<double>();
  at::parallel_for(0, blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      function(b * block, std::min(size, (b + 1) * block), data + b * count);
    }
  });
  Tensor total = at::zeros({count}, at::kDouble);
  double* const to = total.data_ptr<double>();
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < count; ++i) to[i] += data[b * count + i];
  }
  return total;
}

}  // namespace

RandomSigns::RandomSigns(int64_t count, int64_t size, uint64_t seed)
    : size_(size),
      words_((size + bits_a_word - 1) / bits_a_word),
      bits_(static_cast<size_t>(count * words_)) {
  Random random(seed);
  for (uint64_t& word : bits_) word = random.next();
}

// `first` is at the start of a word.
template <class T>
void RandomSigns::expand(int64_t row, int64_t first, int64_t last, T* to) const {
  const uint64_t* word = bits_.data() + row * words_ + first / bits_a_word;
  for (; first < last; first += bits_a_word, ++word, to += bits_a_word) {
    const int64_t length = std::min(bits_a_word, last - first);
    for (int64_t i = 0; i < length; ++i) to[i] = static_cast<T>(2 * static_cast<int>((*word >> i) & 1) - 1);
  }
}

void RandomSigns::write(int64_t row, Tensor& vector) const {
  for_number_type(vector, [&](auto type) {
    using T = decltype(type);
    T* const to = vector.data_ptr<T>();
    at::parallel_for(0, (size_ + block - 1) / block, 16, [&](int64_t begin, int64_t end) {
      expand(row, begin * block, std::min(size_, end * block), to + begin * block);
    });
  });
}

RandomSigns::Products RandomSigns::products(const std::vector<Tensor>& rows) const {
  const auto count = static_cast<int64_t>(rows.size());
  Tensor sums;
  for_number_type(rows.front(), [&](auto type) {
    using T = decltype(type);
    const std::vector<T*> y = pointers<T>(rows);
    sums = sum_over_blocks(size_, 2 * count * count, [&](int64_t first, int64_t last, double* to) {
      T signs[block];
      for (int64_t i = 0; i < count; ++i) {
        expand(i, first, last, signs);
        const T* const own = y[static_cast<size_t>(i)] + first;
        for (int64_t j = 0; j < count; ++j) {
          const T* const other = y[static_cast<size_t>(j)] + first;
          to[i * count + j] = dot(signs, other, last - first);
          if (j <= i) to[(count + i) * count + j] = dot(own, other, last - first);
        }
      }
    });
  });
  const Tensor lower = sums.slice(0, count * count).view({count, count});
  return {.signs_rows = sums.slice(0, 0, count * count).view({count, count}),
          .rows_rows = lower + lower.tril(-1).t()};
}

Tensor rows_times(const std::vector<Tensor>& rows, const Tensor& p) {
  const auto count = static_cast<int64_t>(rows.size());
  Tensor sums;
  for_number_type(p, [&](auto type) {
    using T = decltype(type);
    const std::vector<T*> y = pointers<T>(rows);
    const T* const vector = p.data_ptr<T>();
    sums = sum_over_blocks(p.numel(), count, [&](int64_t first, int64_t last, double* to) {
      for (int64_t i = 0; i < count; ++i) {
        to[i] = dot(y[static_cast<size_t>(i)] + first, vector + first, last - first);
      }
    });
  });
  return sums;
}

void add_rows_(Tensor& sum, const std::vector<Tensor>& rows, const Tensor& coefficients) {
  const Tensor c = coefficients.to(at::kDouble).contiguous();
  for_number_type(sum, [&](auto type) {
    using T = decltype(type);
    const std::vector<T*> y = pointers<T>(rows);
    T* const to = sum.data_ptr<T>();
    const int64_t size = sum.numel();
    at::parallel_for(0, (size + block - 1) / block, 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * block, last = std::min(size, (b + 1) * block);
        for (size_t row = 0; row < rows.size(); ++row) {
          const T share = static_cast<T>(c.data_ptr<double>()[row]);
          const T* const from = y[row];
#pragma omp simd
          for (int64_t i = first; i < last; ++i) to[i] += share * from[i];
        }
      }
    });
  });
}

}  // namespace bilevel::detail
