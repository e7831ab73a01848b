#pragma once
// Many small files, read side by side.

#include <cstdint>
#include <functional>

namespace bilevel {

// work(0) .. work(count - 1) on LibTorch's threads. If some throw, what the first of them threw is thrown: a
// message does not depend on the threads.
void parallel_files(int64_t count, const std::function<void(int64_t)>& work);

}  // namespace bilevel
