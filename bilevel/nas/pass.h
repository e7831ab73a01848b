#pragma once
// One walk over a network. A network is written once, as a function of a Pass; walked without weights it
// tells which weights there are, how they start and what a forward pass costs (NetworkPlan), walked with them
// it computes. So counts, starting points and values cannot disagree.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/core/tensor.h"

namespace bilevel::nas {

struct BatchMoments;
class NormSums;

// Batch norm's constants, PyTorch's.
constexpr double norm_momentum = 0.1;  // of running statistics
constexpr double norm_epsilon = 1e-5;

// What flows through a network: images x channels x height x width.
struct Feature {
  Tensor value;  // undefined where the network is only described
  int64_t channels = 0, height = 0, width = 0;
};

struct NetworkPlan {
  Layout weights;
  std::vector<double> starts;  // per entry: uniform in +-starts, as PyTorch; negative = all of them -starts
  Layout statistics;           // running mean and variance of every batch norm
  int64_t drop_paths = 0;      // edges that may be dropped in training
  int64_t multiply_adds = 0;   // of one image, convolutions and linear layers

  int64_t parameters() const { return weights.size(); }
  Tensor initial_weights(uint64_t seed, const at::TensorOptions& options) const;
  Tensor initial_statistics(const at::TensorOptions& options) const;  // mean 0, variance 1
};

struct Convolution {
  int64_t outputs = 0;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  int64_t padding = -1;  // negative = what keeps the size at stride 1
  bool bias = false;
};

// How batch norm gets its statistics: from the batch alone (a search), from the batch and remembered
// (training), or from what was remembered (testing).
enum class Norm { batch, remember, remembered };

struct PassOptions {
  Norm norm = Norm::batch;
  Tensor statistics = {};  // flat, of the plan's size; written to where norm = remember
  bool merged = true;      // parallel copies as one operation (operations.h); false is the plain reference
  // In training, what every edge that may be dropped is multiplied by, image by image: plan.drop_paths x
  // images; undefined = nothing is dropped.
  Tensor kept = {};
  // Where ranks divide a batch: over whose images norms take their statistics; null = these alone.
  std::shared_ptr<NormSums> norms = {};
};

// 0 where an edge is dropped for an image, which has the given probability, and 1 / (1 - probability)
// elsewhere; on the device and in the type of `tensors`.
Tensor draw_kept(const NetworkPlan& plan, int64_t images, double probability, uint64_t seed,
                 const at::TensorOptions& tensors);

class Pass {
 public:
  explicit Pass(NetworkPlan& plan);                                          // describes: adds to the plan
  Pass(const NetworkPlan& plan, const Tensor& w, PassOptions options = {});  // computes
  // Computes with weights and statistics that are already apart, in the plan's order.
  Pass(std::vector<Tensor> weights, std::vector<Tensor> statistics, PassOptions options);

  bool computes() const { return plan_ == nullptr; }
  bool merged() const { return options_.merged; }
  void enter(std::string part) { part_ = std::move(part); }  // names what follows

  Feature convolve(const Feature& x, const Convolution& c);
  // `affine`: a learned scale and shift. `scale`: channels' weights given from outside instead; undefined =
  // one.
  Feature normalize(const Feature& x, bool affine, const Tensor& scale = {});
  // A norm by the batch's statistics alone, with weights that the caller holds.
  Tensor normalize_values(const Tensor& x, const Tensor& scale, const Tensor& shift) const;
  Feature linear(const Feature& x, int64_t outputs);  // of 1 x 1 features, with bias
  Feature drop_path(const Feature& x);                // by PassOptions::kept

  // A weight by itself, for what is none of the above; undefined where the pass describes.
  Tensor weight(const std::string& name, std::vector<int64_t> shape, double start);
  void add_multiply_adds(int64_t count);

 private:
  Tensor over_ranks(const Tensor& x, const Tensor& scale, const Tensor& shift, BatchMoments* seen) const;

  NetworkPlan* plan_ = nullptr;
  PassOptions options_;
  std::vector<Tensor> weights_, statistics_;
  size_t next_weight_ = 0, next_statistic_ = 0;
  int64_t next_drop_path_ = 0;
  std::string part_;
  int64_t named_ = 0;
};

// Without weights, so without a pass.
Feature relu(const Feature& x);
// LibTorch 2.11 and before has wrong gradients of padded average pools on GPUs where channels lie together
// (its issue 188344): there they are laid apart.
Tensor for_padded_pool(const Tensor& image, int64_t padding);
Feature average_pool(const Feature& x, int64_t kernel, int64_t stride, int64_t padding, bool count_padding);
Feature average_pairs(
    const Feature& x);  // 2 x 2 windows side by side; an odd last row or column stands alone
Feature max_pool(const Feature& x, int64_t kernel, int64_t stride, int64_t padding);
Feature global_pool(const Feature& x);  // mean over height and width
Feature add(const Feature& a, const Feature& b);
Feature scale(const Feature& x, const Tensor& factor);  // a number or one per ... that broadcasts
Feature concatenate(const std::vector<Feature>& features);
Feature shift_by_one(const Feature& x);  // without the first row and column: FactorizedReduce's other grid
Feature zeros_like(const Feature& x, int64_t stride);

// The bound of PyTorch's default start of convolutions and linear layers.
double fan_in_bound(int64_t fan_in);

}  // namespace bilevel::nas
