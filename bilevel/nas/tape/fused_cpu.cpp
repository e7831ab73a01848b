#include "bilevel/nas/tape/fused_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bilevel/nas/tape/fused.h"
#include "bilevel/problems/softmax_kernels.h"

namespace bilevel::nas::fused {
// Named, because the templates below are visible elsewhere and what they hold must be.
namespace cpu {

template <typename T>
const Loops<T>& loops() {
#if defined(__x86_64__)
  static const Loops<T>& best =
      softmax::best_instructions() == softmax::Instructions::avx512 ? avx512_loops<T>()
      : softmax::best_instructions() == softmax::Instructions::avx2 ? avx2_loops<T>()
                                                                    : baseline_loops<T>();
  return best;
#else
  return baseline_loops<T>();
#endif
}

// Parts of a range, whose number depends on the range alone: any number of threads gives the same sums.
struct Chunks {
  int64_t all, count, length;
  Chunks(int64_t whole, int64_t at_least, int64_t most)
      : all(whole),
        count(std::clamp<int64_t>((whole + at_least - 1) / at_least, 1, most)),
        length((whole + count - 1) / count) {}
  explicit Chunks(const Shape& shape) : Chunks(shape.pixels(), 512, most_blocks) {}

  template <typename Work>  // work(chunk, begin, end)
  void each(const Work& work) const {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        work(i, std::min(all, i * length), std::min(all, (i + 1) * length));
      }
    });
  }
  // Sums of the chunks, each `numbers` long, added in order.
  template <typename Work>  // work(begin, end, sums)
  std::vector<double> sums(double* partial, int64_t numbers, const Work& work) const {
    each([&](int64_t chunk, int64_t begin, int64_t end) {
      double* own = partial + chunk * numbers;
      std::fill(own, own + numbers, 0.0);
      work(begin, end, own);
    });
    std::vector<double> totals(static_cast<size_t>(numbers), 0.0);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < numbers; ++k) totals[static_cast<size_t>(k)] += partial[i * numbers + k];
    }
    return totals;
  }
};

template <typename T>
void statistics_of(const Statistics<T>& work, int which, bool tangent) {
  const int64_t channels = work.shape.channels;
  const std::vector<double> totals =
      Chunks(work.shape).sums(work.partial, 2 * channels, [&](int64_t begin, int64_t end, double* sums) {
        loops<T>().statistics(work, which, tangent, begin, end, sums);
      });
  const double n = work.shape.pixels();
  for (int64_t c = 0; c < channels; ++c) {
    const double first = totals[static_cast<size_t>(c)] / n,
                 second = totals[static_cast<size_t>(channels + c)] / n;
    if (tangent) {
      work.mean_dot[which][c] = static_cast<T>(first);
      work.moment[which][c] = static_cast<T>(second);
    } else {
      work.mean[which][c] = static_cast<T>(static_cast<double>(work.z[which][c]) + first);
      work.inverse[which][c] =
          static_cast<T>(1 / std::sqrt(std::max(second - first * first, 0.0) + work.epsilon));
    }
  }
}

template <typename Work>  // work(image)
void each_image(int64_t images, const Work& work) {
  at::parallel_for(0, images, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(i);
  });
}

}  // namespace cpu

using namespace cpu;

template <typename T>
void statistics(const Statistics<T>& work, bool tangent, Cpu) {
  for (int which = 0; which < work.tensors; ++which) statistics_of(work, which, tangent);
}

template <typename T>
void mix(const Mixing<T>& work, bool tangent, Cpu) {
  Chunks(work.node.shape).each([&](int64_t, int64_t begin, int64_t end) {
    loops<T>().mix(work, tangent, begin, end);
  });
}

template <typename T>
void gather(const Gathering<T>& work, bool tangent, Cpu) {
  const Node<T>& node = work.node;
  const Chunks chunks(node.shape);
  if (work.sums.partial == nullptr) {
    chunks.each(
        [&](int64_t, int64_t begin, int64_t end) { loops<T>().gather(work, tangent, begin, end, nullptr); });
    return;
  }
  const std::vector<double> totals = chunks.sums(
      work.sums.partial, (1 + node.norms + node.plains) * node.shape.channels,
      [&](int64_t begin, int64_t end, double* sums) { loops<T>().gather(work, tangent, begin, end, sums); });
  for (size_t i = 0; i < totals.size(); ++i) work.sums.totals[i] = static_cast<T>(totals[i]);
}

template <typename T>
void spread(const Spreading<T>& work, bool tangent, Cpu) {
  Chunks(work.node.shape).each([&](int64_t, int64_t begin, int64_t end) {
    loops<T>().spread(work, tangent, begin, end);
  });
}

template <typename T>
void pool(const Pooling<T>& work, Cpu) {
  at::parallel_for(0, work.shape.images, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> scratch(static_cast<size_t>(5 * work.shape.width * work.shape.channels));
    for (int64_t i = begin; i < end; ++i) loops<T>().pool(work, i, scratch.data());
  });
}

template <typename T>
void depthwise(const Depthwise<T>& work, Cpu) {
  each_image(work.image.images, [&](int64_t i) { loops<T>().depthwise(work, i); });
}

template <typename T>
void depthwise_in_image(const Depthwise<T>& work, Cpu) {
  each_image(work.image.images, [&](int64_t i) { loops<T>().depthwise_in_image(work, i); });
}

template <typename T>
void depthwise_in_weights(const Depthwise<T>& work, Cpu) {
  const std::vector<double> totals = Chunks(work.image.images, 1, most_images)
                                         .sums(work.partial, work.outputs * work.kernel * work.kernel,
                                               [&](int64_t begin, int64_t end, double* sums) {
                                                 loops<T>().depthwise_in_weights(work, begin, end, sums);
                                               });
  for (size_t i = 0; i < totals.size(); ++i) work.out[i] = static_cast<T>(totals[i]);
}

template <typename T>
void max_pool(const MaxPooling<T>& work, Cpu) {
  const int64_t channels = work.image.channels, height = work.image.height, width = work.image.width;
  each_image(work.image.images, [&](int64_t image) {
    const T* x = work.x + image * height * width * channels;
    for (int64_t o = 0; o < static_cast<int64_t>(work.height) * work.width; ++o) {
      const int64_t row = o / work.width * work.stride - work.padding,
                    column = o % work.width * work.stride - work.padding;
      const int64_t at = (image * work.height * work.width + o) * channels;
      T* y = work.y + at;
      int* index = work.index + at;
      bool begun = false;
      for (int64_t i = std::max<int64_t>(row, 0); i < std::min(row + work.kernel, height); ++i) {
        for (int64_t j = std::max<int64_t>(column, 0); j < std::min(column + work.kernel, width); ++j) {
          const int pixel = static_cast<int>(i * width + j);
          const T* here = x + pixel * channels;
          for (int64_t c = 0; c < channels; ++c) {
            const bool larger = !begun || here[c] > y[c] || here[c] != here[c];  // or NaN
            y[c] = larger ? here[c] : y[c];
            index[c] = larger ? pixel : index[c];
          }
          begun = true;
        }
      }
    }
  });
}

template <typename T>
void at_largest(const MaxPooling<T>& work, Cpu) {
  const int64_t channels = work.image.channels, pixels = static_cast<int64_t>(work.height) * work.width;
  each_image(work.image.images, [&](int64_t image) {
    const T* x = work.x + image * work.image.height * work.image.width * channels;
    for (int64_t i = image * pixels * channels; i < (image + 1) * pixels * channels; ++i) {
      work.y[i] = x[work.index[i] * channels + i % channels];
    }
  });
}

template <typename T>
void to_largest(const MaxPooling<T>& work, Cpu) {
  const int64_t channels = work.image.channels, pixels = static_cast<int64_t>(work.height) * work.width,
                size = static_cast<int64_t>(work.image.height) * work.image.width * channels;
  each_image(work.image.images, [&](int64_t image) {
    T* y = work.y + image * size;
    std::fill(y, y + size, T(0));
    for (int64_t i = image * pixels * channels; i < (image + 1) * pixels * channels; ++i) {
      y[work.index[i] * channels + i % channels] += work.x[i];
    }
  });
}

#define BILEVEL_FUSED(T)                                        \
  template void statistics(const Statistics<T>&, bool, Cpu);    \
  template void mix(const Mixing<T>&, bool, Cpu);               \
  template void gather(const Gathering<T>&, bool, Cpu);         \
  template void spread(const Spreading<T>&, bool, Cpu);         \
  template void pool(const Pooling<T>&, Cpu);                   \
  template void depthwise(const Depthwise<T>&, Cpu);            \
  template void depthwise_in_image(const Depthwise<T>&, Cpu);   \
  template void depthwise_in_weights(const Depthwise<T>&, Cpu); \
  template void max_pool(const MaxPooling<T>&, Cpu);            \
  template void at_largest(const MaxPooling<T>&, Cpu);          \
  template void to_largest(const MaxPooling<T>&, Cpu);
BILEVEL_FUSED(float)
BILEVEL_FUSED(double)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
