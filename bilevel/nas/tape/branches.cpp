#include "bilevel/nas/tape/branches.h"

#ifdef BILEVEL_HAS_CUDA

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace bilevel::nas {

namespace {

// The same streams every time, so that what a stream has cached serves again.
const std::vector<c10::cuda::CUDAStream>& side_streams() {
  static std::map<c10::DeviceIndex, std::vector<c10::cuda::CUDAStream>> of_device;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& streams = of_device[c10::cuda::current_device()];
  while (streams.size() < Branches::count) streams.push_back(c10::cuda::getStreamFromPool());
  return streams;
}

}  // namespace

struct Branches::Streams {
  std::vector<c10::cuda::CUDAStream> side = side_streams();
  std::array<bool, count> open{};  // has work that was not joined
  std::optional<c10::cuda::CUDAStreamGuard> on;
};

Branches::Branches(const Tensor& where) {
  if (!where.is_cuda()) return;
  streams_ = std::make_unique<Streams>();
}

void Branches::enter(size_t which) {
  if (!streams_) return;
  at::cuda::CUDAEvent here;
  here.record();
  here.block(streams_->side.at(which));
  streams_->open.at(which) = true;
  streams_->on.emplace(streams_->side[which]);
}

void Branches::leave() {
  if (streams_) streams_->on.reset();
}

void Branches::join(size_t which) {
  if (!streams_ || !streams_->open.at(which)) return;
  at::cuda::CUDAEvent done;
  done.record(streams_->side[which]);
  done.block(c10::cuda::getCurrentCUDAStream());
  streams_->open[which] = false;
}

}  // namespace bilevel::nas

#else

namespace bilevel::nas {

struct Branches::Streams {};

Branches::Branches(const Tensor& /*where*/) {}
void Branches::enter(size_t /*which*/) {}
void Branches::leave() {}
void Branches::join(size_t /*which*/) {}

}  // namespace bilevel::nas

#endif

namespace bilevel::nas {

Branches::~Branches() = default;

void Branches::join_all() {
  for (size_t i = 0; i < count; ++i) join(i);
}

}  // namespace bilevel::nas
