#include "bilevel/data/parallel_files.h"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>

namespace bilevel {

void parallel_files(int64_t count, const std::function<void(int64_t)>& work) {
  std::mutex mutex;
  int64_t failed = count;  // the first file known to be wrong: those after it need not be read
  std::exception_ptr error;
  constexpr int64_t grain = 16;
  at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i % grain == 0) {
        const std::lock_guard lock(mutex);
        if (failed < i) return;
      }
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
        return;
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace bilevel
