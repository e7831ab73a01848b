#include "bilevel/nas/captured.h"

#include <stdexcept>
#include <utility>

#ifdef BILEVEL_HAS_CUDA

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>

namespace bilevel::nas {
namespace {

// cuDNN's algorithms that give the same bits every time, while an object lives: what a graph captures it
// keeps.
class SameBits {
 public:
  SameBits() : before_(at::globalContext().deterministicCuDNN()) {
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~SameBits() { at::globalContext().setDeterministicCuDNN(before_); }
  SameBits(const SameBits&) = delete;
  SameBits& operator=(const SameBits&) = delete;

 private:
  bool before_;
};

// All graphs are captured on one stream, because memory that a stream has cached serves no other.
c10::cuda::CUDAStream capture_stream() {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> of_device;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto device = c10::cuda::current_device();
  auto found = of_device.find(device);
  if (found == of_device.end()) found = of_device.emplace(device, c10::cuda::getStreamFromPool()).first;
  return found->second;
}

}  // namespace

bool can_capture() { return at::hasCUDA(); }

struct Captured::Graph {
  explicit Graph(c10::Device where) : device(where) {}
  c10::Device device;
  bool captured = false;
  at::cuda::CUDAGraph graph;
  at::cuda::MempoolId_t pool{};
  std::vector<Tensor> inputs, outputs;

  void capture(const Function& function, const std::vector<Tensor>& given, const Graph* after,
               const std::function<void()>& forget) {
    // The function sees the same memory under another version counter: a graph that is kept must not complain
    // that its inputs change, since that is what a replay is for.
    std::vector<Tensor> seen;
    inputs.clear();
    for (const Tensor& input : given) {
      inputs.push_back(input.detach().clone());
      seen.push_back(inputs.back().variable_data());
    }
    const c10::cuda::CUDAStream side = capture_stream();
    c10::cuda::device_synchronize();
    {
      const c10::cuda::CUDAStreamGuard on(side);
      const SameBits every_time;
      // Libraries choose their algorithms and take their memory in the first calls, which no graph can hold.
      for (int i = 0; i < 3; ++i) function(seen);
      c10::cuda::device_synchronize();
      if (forget) forget();
      c10::cuda::CUDACachingAllocator::emptyCache();  // the graph has memory of its own
      if (after != nullptr) {
        graph.capture_begin(after->pool);
      } else {
        graph.capture_begin();
      }
      try {
        outputs = function(seen);
      } catch (...) {
        give_up();
        if (forget) forget();
        throw;
      }
      graph.capture_end();
      pool = graph.pool();
    }
    captured = true;
    c10::cuda::device_synchronize();
  }

  // Ends the capture and drops the graph. What these calls throw is a consequence of the error that the
  // caller gets.
  void give_up() {
    try {
      graph.capture_end();
    } catch (...) {
    }
    try {
      graph.reset();
    } catch (...) {
    }
    outputs.clear();
  }

  std::vector<Tensor> replay(const std::vector<Tensor>& given) {
    bool fits = given.size() == inputs.size();
    for (size_t i = 0; fits && i < given.size(); ++i) fits = given[i].sizes() == inputs[i].sizes();
    if (!fits) throw std::logic_error("a captured function was called with tensors of other shapes");
    for (size_t i = 0; i < given.size(); ++i) inputs[i].copy_(given[i], /*non_blocking=*/true);
    graph.replay();
    std::vector<Tensor> results;
    for (const Tensor& output : outputs) results.push_back(output.defined() ? output.clone() : output);
    return results;
  }
};

}  // namespace bilevel::nas

#else

namespace bilevel::nas {

bool can_capture() { return false; }

struct Captured::Graph {
  explicit Graph(c10::Device where) : device(where) {}
  c10::Device device;
  bool captured = false;
  void capture(const Function&, const std::vector<Tensor>&, const Graph*, const std::function<void()>&) {}
  std::vector<Tensor> replay(const std::vector<Tensor>&) { return {}; }
};

}  // namespace bilevel::nas

#endif

namespace bilevel::nas {

Captured::Captured(Function function, const at::TensorOptions& tensors, const Captured* after,
                   std::function<void()> forget)
    : function_(std::move(function)), after_(after), forget_(std::move(forget)) {
  if (tensors.device().is_cpu()) return;
  if (!can_capture()) throw std::invalid_argument("captured graphs need a LibTorch with CUDA");
  graph_ = std::make_unique<Graph>(tensors.device());
}

Captured::~Captured() = default;

std::vector<Tensor> Captured::operator()(const std::vector<Tensor>& inputs) {
  if (!graph_) return function_(inputs);
#ifdef BILEVEL_HAS_CUDA
  const c10::cuda::CUDAGuard here(graph_->device);  // streams and kernels are the current device's
#endif
  if (!graph_->captured)
    graph_->capture(function_, inputs, after_ == nullptr ? nullptr : after_->graph_.get(), forget_);
  return graph_->replay(inputs);
}

}  // namespace bilevel::nas
