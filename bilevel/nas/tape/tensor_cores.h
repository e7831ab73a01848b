#pragma once
// The gradient of a convolution (3 x 3 with padding 1, or 1 x 1; stride 1) in its weights, on a GPU's tensor
// cores: float numbers rounded to TF32, sums in float, channels last. Two products are added in one go, which
// is what a tangent needs, and the sum is the same every time; cuDNN's fastest algorithms add in an order
// that changes from run to run.

namespace bilevel::nas::fused {

struct WeightGradient {
  int images, height, width, channels, outputs;
  int kernel;               // 3 or 1
  int pairs;                // 1 or 2: the sum over pairs of images and adjoints
  const float* image[2];    // images x height x width x channels
  const float* adjoint[2];  // images x height x width x outputs
  float* partial;  // shares x outputs x kernel x kernel x channels: the pixels are dealt out to shares
};

// Channels and outputs in sixteens, width in eights.
bool fits_tensor_cores(const WeightGradient& work);
int shares_of(const WeightGradient& work);
void weight_gradient(const WeightGradient& work, void* stream);

// The shares of several gradients, each added in order: many at a time, because each alone is a small kernel.
constexpr int most_gradients = 96;
struct ShareSums {
  int gradients;
  struct Gradient {
    const float* partial;
    float* out;
    int shares, size, first_block;  // the last is the launch's own
  } gradient[most_gradients];
};
void add_shares(ShareSums work, void* stream);

}  // namespace bilevel::nas::fused
