#include "bilevel/run/block_cache.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace bilevel {
namespace {

#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-missing-override"  // on purpose, see below
#endif

// No `override` on what LibTorch changed between its versions: `allocate` was const and `copy_data` did not
// exist in 1.13. The version at hand picks what it knows; the rest are functions that are never called.
class BlockCache final : public c10::Allocator {
 public:
  static BlockCache& instance() {
    static auto* cache =
        new BlockCache;  // never destroyed: tensors that outlive main still have a place to go
    return *cache;
  }

  c10::DataPtr allocate(size_t bytes) const {
    return instance().make(bytes);
  }                                                                 // NOLINT(modernize-use-override)
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }       // NOLINT(modernize-use-override)
  void copy_data(void* to, const void* from, size_t bytes) const {  // NOLINT(modernize-use-override)
    std::memcpy(to, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }  // for blocks of either kind

  void trim() {
    const std::lock_guard lock(mutex_);
    release_idle();
  }

 private:
  static constexpr size_t smallest = size_t{1} << 20;     // below it the heap serves well
  static constexpr size_t granularity = size_t{1} << 16;  // sizes that differ by less share their blocks
  static constexpr size_t huge_page = size_t{2} << 20;
  static constexpr size_t most_idle = size_t{512} << 20;  // what may lie unused

  c10::DataPtr make(size_t bytes) {
    if (bytes < smallest) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* data = take((bytes + granularity - 1) / granularity * granularity);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& idle = idle_[bytes];
    void* data = nullptr;
    if (!idle.empty()) {
      data = idle.back();
      idle.pop_back();
      idle_bytes_ -= bytes;
    } else {
      data = map(bytes);
    }
    live_[data] = bytes;
    return data;
  }

  // A large block begins at a huge page and asks for huge pages as far as it fills them, so that it never
  // takes more memory than its size: products that walk through it miss fewer addresses, and it is cleared
  // faster.
  static void* map(size_t bytes) {
    const size_t more = bytes < huge_page ? 0 : huge_page;
    void* const mapped =
        mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    if (more == 0) return mapped;
    auto* const from = static_cast<char*>(mapped);
    const size_t beyond = reinterpret_cast<uintptr_t>(mapped) % huge_page;
    const size_t before = beyond == 0 ? 0 : huge_page - beyond;
    if (before > 0) munmap(from, before);
    if (before < more) munmap(from + before + bytes, more - before);
#ifdef MADV_HUGEPAGE
    madvise(from + before, bytes / huge_page * huge_page, MADV_HUGEPAGE);  // a wish: refusal is no error
#endif
    return from + before;
  }

  static void give_back(void* data) {
    BlockCache& cache = instance();
    {
      const std::lock_guard lock(cache.mutex_);
      if (const auto found = cache.live_.find(data); found != cache.live_.end()) {
        const size_t bytes = found->second;
        cache.live_.erase(found);
        if (cache.idle_bytes_ + bytes > most_idle)
          cache.release_idle();  // or stale sizes would stay for ever
        cache.idle_[bytes].push_back(data);
        cache.idle_bytes_ += bytes;
        return;
      }
    }
    c10::GetDefaultCPUAllocator()->raw_deleter()(data);
  }

  void release_idle() {
    for (auto& [bytes, blocks] : idle_) {
      for (void* data : blocks) munmap(data, bytes);
      blocks.clear();
    }
    idle_bytes_ = 0;
  }

  std::mutex mutex_;  // a backward pass frees from its own thread
  std::unordered_map<void*, size_t> live_;
  std::map<size_t, std::vector<void*>> idle_;
  size_t idle_bytes_ = 0;
};

}  // namespace

void use_block_cache() {
#if !defined(__SANITIZE_ADDRESS__)
  c10::SetCPUAllocator(&BlockCache::instance(), /*priority=*/100);
#endif
}

void trim_block_cache() { BlockCache::instance().trim(); }

}  // namespace bilevel
