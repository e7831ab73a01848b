#pragma once
// An allocator for LibTorch's large CPU tensors: freed blocks are kept by size and used again. The C
// library's heap does badly with them: LibTorch asks for blocks aligned to 64 bytes, small objects settle in
// what the alignment leaves over, and a hole that a freed block left is then a few bytes too small for the
// next block of the same size. Reverse mode was seen to occupy twice what it keeps that way. The other way of
// the C library, a fresh mapping for every block, is exact but clears every page again, which doubles the
// time of elementwise work. Here a block of a size that was freed before costs nothing, and the process holds
// what is live and no more.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace bench {

class BlockCache final : public c10::Allocator {
 public:
  // Makes it the CPU allocator of the process, for good: tensors that outlive main still have a place to go.
  static void install() { c10::SetCPUAllocator(&instance(), /*priority=*/100); }

  // Gives back to the system what lies unused, as malloc_trim does for the heap.
  static void trim() {
    const std::lock_guard lock(instance().mutex_);
    instance().release_idle();
  }

  c10::DataPtr allocate(size_t bytes) const override {
    if (bytes < smallest) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* data = instance().take((bytes + granularity - 1) / granularity * granularity);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }  // for blocks of either kind

 private:
  static constexpr size_t smallest = size_t{1} << 20;     // below it the heap serves well
  static constexpr size_t granularity = size_t{1} << 16;  // sizes that differ by less share their blocks
  static constexpr size_t most_idle = size_t{512} << 20;  // what may lie unused

  static BlockCache& instance() {
    static auto* cache = new BlockCache;
    return *cache;
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
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) throw std::bad_alloc();
    }
    live_[data] = bytes;
    return data;
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

}  // namespace bench
