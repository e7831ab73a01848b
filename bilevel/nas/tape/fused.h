#pragma once
// The passes of a supernet that are bound by memory, each fused into one sweep: forward, backward, and the
// tangents of both. Plain pointers to images x height x width x channels (channels last), so that the CUDA
// kernels compile without LibTorch. fused_cpu.cpp is the twin of the *_cuda.cu: same formulas (formulas.h),
// same results to rounding, and both give the same bits every time.
//
// A node of the network is a weighted sum
//     y = sum_t (gain_t h_t + shift_t) + sum_s gain_s x_s
// of norms h = (z - mean) inverse by the batch's statistics, and of plain features x. With n pixels a channel
// and the node's adjoint a = dL/dy, a norm's adjoint is
//     dL/dz = gain inverse (a - S_0 / n - h S_1 / n),   S_0 = sum a,  S_1 = sum a h,
// and gain's own is S_1 (sum a x for a plain feature). A tangent pass differentiates all of these along a
// direction; a name with _dot is the derivative of the name without.

namespace bilevel::nas::fused {

constexpr int most_norms = 8, most_plains = 8, most_sources = 8, most_tensors = 8;
constexpr int most_blocks = 528;  // that share a sum: partial sums are kept for each

struct Shape {
  int images, height, width, channels;
#ifdef __CUDACC__
  __host__ __device__
#endif
      int
      pixels() const {
    return images * height * width;
  }
};

template <typename T>
struct Norm {
  const T* z;  // its first channel of the first pixel
  int pitch;   // channels of z's tensor, of which the norm takes Shape::channels
  const T* mean;
  const T* inverse;  // 1 / sqrt(variance + epsilon)
  const T* gain;     // nullptr = 1
  int gain_step;     // 0: one number for all channels, 1: one each
  const T* shift;    // nullptr = 0

  const T* z_dot;       // tangents; z's is a sum of two
  const T* z_dot_more;  // nullptr = 0
  const T* mean_dot;    // mean(z_dot)
  const T* moment;      // mean(z_dot h)
  const T* gain_dot;    // nullptr = 0
  const T* shift_dot;   // nullptr = 0

  T* adjoint;  // dL/dz, of z's pitch; in a tangent pass its derivative
};

template <typename T>
struct Plain {
  const T* x;
  const T* gain;  // one number; nullptr = 1
  const T* x_dot;
  const T* gain_dot;  // nullptr = 0
};

// Where sums over pixels go: blocks of pixels leave theirs in `partial`, which are then added in order.
template <typename T>
struct Sums {
  double* partial;  // most_blocks x rows x channels
  T* totals;        // rows x channels
};

template <typename T>
struct Node {
  Shape shape;
  int norms, plains;
  Norm<T> norm[most_norms];
  Plain<T> plain[most_plains];
};

// What makes up a feature's adjoint: sum gain * (adjoint of a node that it is a plain term of) + sum direct
// + [feature > 0] sum rectified. The first `rectified_weights` nodes have max(feature, 0) as their term.
template <typename T>
struct Sources {
  int weighted, directs, rectifieds, rectified_weights;
  struct Weighted {
    const T* adjoint;
    const T* gain;  // nullptr = 1
    // in a tangent pass `adjoint` is the tangent, and this the adjoint itself
    const T* adjoint_before;
    const T* gain_dot;  // nullptr = 0
  } weight[most_sources];
  const T* direct[most_sources];
  const T* rectified[most_sources];
  const T* feature;  // where there are rectified ones
#ifdef __CUDACC__
  __host__ __device__
#endif
      bool
      rectifies() const {
    return rectifieds + rectified_weights > 0;
  }
};

// Statistics of tensors of the same shape.
template <typename T>
struct Statistics {
  Shape shape;
  int tensors;
  double epsilon;
  const T* z[most_tensors];
  T* mean[most_tensors];
  T* inverse[most_tensors];
  double* partial;  // of sums: tensors x most_blocks x 2 x channels
  // of a tangent pass
  const T* z_dot[most_tensors];
  const T* z_dot_more[most_tensors];  // nullptr = 0
  T* mean_dot[most_tensors];
  T* moment[most_tensors];
};

template <typename T>
struct Mixing {  // y = ... as above
  Node<T> node;
  T* y;
  T* rectified;    // max(y, 0); nullptr = not wanted. Of a tangent: where y > 0, else 0
  const T* value;  // tangent passes: y itself
};

// adjoint = sum of sources; totals: S_0, then S_1 per norm, then sum a x per plain term.
template <typename T>
struct Gathering {
  Node<T> node;
  Sources<T> sources;
  T* adjoint;
  const T* adjoint_before;  // tangent passes: the adjoint itself
  Sums<T> sums;             // 1 + norms + plains rows, or partial = nullptr where there is no sum to make
};

// Writes every norm's adjoint.
template <typename T>
struct Spreading {
  Node<T> node;
  const T* adjoint;
  const T* totals;
  // of a tangent pass: `adjoint` and `totals` are the tangents, these what they were
  const T* adjoint_before;
  const T* totals_before;
};

template <typename T>
struct Pooling {  // 3 x 3 average, stride 1, padding not counted; or its transpose
  Shape shape;
  const T* x;
  T* y;
  bool transposed;
};

// A convolution of each channel on its own: channel c of `outputs` reads channel c % channels of the image,
// so that several edges which leave the image share it. Sums over pairs of an image and weights (or an
// adjoint): a tangent is the sum of two.
template <typename T>
struct Depthwise {
  Shape image;
  int outputs, height, width;  // of the result; outputs is a multiple of the image's channels
  int kernel, stride, padding, dilation;
  int pairs;  // 1 or 2
  const T* x[2];
  const T* weights[2];  // outputs x kernel x kernel
  const T* adjoint[2];  // of the result
  T* out;               // the result; the adjoint in the image; the gradient in the weights
  double* partial;      // of the last: most_images x outputs x kernel x kernel
};
constexpr int most_images = 32;  // chunks of images that share a sum

template <typename T>
struct MaxPooling {
  Shape image;
  int height, width;  // of the result
  int kernel, stride, padding;
  const T* x;
  T* y;
  int* index;  // of the result's size: which pixel of the image was largest, the first of equals
};

struct Cpu {};
struct Cuda {
  void* stream;  // cudaStream_t
};

// For T = float and double, on either. The tangent forms read and write what is marked so above.
#define BILEVEL_FUSED(Place)                                                          \
  template <typename T>                                                               \
  void statistics(const Statistics<T>& work, bool tangent, Place at);                 \
  template <typename T>                                                               \
  void mix(const Mixing<T>& work, bool tangent, Place at);                            \
  template <typename T>                                                               \
  void gather(const Gathering<T>& work, bool tangent, Place at);                      \
  template <typename T>                                                               \
  void spread(const Spreading<T>& work, bool tangent, Place at);                      \
  template <typename T>                                                               \
  void pool(const Pooling<T>& work, Place at);                                        \
  template <typename T>                                                               \
  void depthwise(const Depthwise<T>& work, Place at);                                 \
  template <typename T>                                                               \
  void depthwise_in_image(const Depthwise<T>& work, Place at);                        \
  template <typename T>                                                               \
  void depthwise_in_weights(const Depthwise<T>& work, Place at);                      \
  template <typename T>                                                               \
  void max_pool(const MaxPooling<T>& work, Place at);                                 \
  /* y of the result's size = x of the image's at the index; the transpose of that */ \
  template <typename T>                                                               \
  void at_largest(const MaxPooling<T>& work, Place at);                               \
  template <typename T>                                                               \
  void to_largest(const MaxPooling<T>& work, Place at);
BILEVEL_FUSED(Cpu)
BILEVEL_FUSED(Cuda)
#undef BILEVEL_FUSED

}  // namespace bilevel::nas::fused
