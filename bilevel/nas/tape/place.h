#pragma once
// Where fused operations on a tensor run.

#include <stdexcept>

#ifdef BILEVEL_HAS_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include "bilevel/core/tensor.h"
#include "bilevel/nas/tape/fused.h"

namespace bilevel::nas {

template <typename Work>  // work(place)
void at_place(const Tensor& where, const Work& work) {
#ifdef BILEVEL_HAS_CUDA
  if (where.is_cuda()) {
    work(fused::Cuda{c10::cuda::getCurrentCUDAStream().stream()});
    return;
  }
#endif
  if (!where.is_cpu()) throw std::invalid_argument("a tape runs on the CPU or on a GPU with its kernels");
  work(fused::Cpu{});
}

template <typename T>
T* data(const Tensor& t) {
  return t.defined() ? t.data_ptr<T>() : nullptr;
}

}  // namespace bilevel::nas
