#pragma once
// What LibTorch lets cuDNN do, for as long as a test needs it otherwise.

#include <ATen/Context.h>

namespace bilevel::test {

// Convolutions in float with the tensor cores' eleven bits, or with all of them.
class TensorFloat32 {
 public:
  explicit TensorFloat32(bool allowed) : before_(at::globalContext().allowTF32CuDNN()) {
    at::globalContext().setAllowTF32CuDNN(allowed);
  }
  ~TensorFloat32() { at::globalContext().setAllowTF32CuDNN(before_); }
  TensorFloat32(const TensorFloat32&) = delete;
  TensorFloat32& operator=(const TensorFloat32&) = delete;

 private:
  bool before_;
};

// Algorithms that give the same bits every time.
class DeterministicCuDNN {
 public:
  DeterministicCuDNN() : before_(at::globalContext().deterministicCuDNN()) {
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~DeterministicCuDNN() { at::globalContext().setDeterministicCuDNN(before_); }
  DeterministicCuDNN(const DeterministicCuDNN&) = delete;
  DeterministicCuDNN& operator=(const DeterministicCuDNN&) = delete;

 private:
  bool before_;
};

}  // namespace bilevel::test
