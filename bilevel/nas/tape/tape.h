#pragma once
// A supernet as a list of few, large operations, each of which has its forward pass, its backward pass and
// the tangents of both written out (passes.h): what a graph of automatic differentiation spreads over
// thousands of small kernels is a few hundred here, and a Hessian product is two passes instead of a backward
// pass through a backward pass.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/nas/convolution.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {

struct Tape {
  // What operations read and write; slot 0 holds the images.
  struct Slot {
    int64_t channels = 0, height = 0, width = 0;
    bool rectified = false;  // max(value, 0) is wanted too
  };

  struct Convolve {
    size_t in = 0, out = 0;
    bool rectified = false;  // of max(value, 0) instead of the value
    size_t weight = 0;       // which entry of the weights
    ConvolutionForm form;
  };
  struct Pool {  // 3 x 3 average, stride 1, padding not counted
    size_t in = 0, out = 0;
  };
  struct Pairs {  // average of 2 x 2 side by side; an odd last row or column stands alone
    size_t in = 0, out = 0;
  };
  // A norm by the batch's statistics of `channels of out` channels of a slot, from `channel` on, times one
  // weight of the mixture (`choice`), or times a learned scale plus a learned shift.
  struct NormTerm {
    size_t slot = 0;
    int64_t channel = 0;
    std::optional<size_t> choice = std::nullopt, scale = std::nullopt, shift = std::nullopt;
  };
  struct PlainTerm {
    size_t slot = 0;
    std::optional<size_t> choice = std::nullopt;
  };
  struct Mix {  // the sum of its terms
    size_t out = 0;
    std::vector<NormTerm> norms = {};
    std::vector<PlainTerm> plains = {};
  };
  using Operation = std::variant<Convolve, Pool, Pairs, Mix>;

  std::vector<Slot> slots;
  std::vector<Operation> operations;
  // At the end: max(value of `last`, 0), averaged over the pixels, into a linear layer.
  size_t last = 0, linear = 0, bias = 0;
  Layout weights;
  size_t choices = 0;  // of the mixture
};

// nullopt where the space has no tape yet: all but nasbench201. Throws std::logic_error where the tape's
// weights are not the supernet's.
std::optional<Tape> record(const Supernet& supernet);
Tape record_nasbench201(const Supernet& supernet);  // tape_nasbench201.cpp

// Writes a tape: every call adds an operation and returns its slot.
class TapeWriter {
 public:
  TapeWriter(const Supernet& supernet, int64_t channels, int64_t height, int64_t width);

  size_t convolve(size_t in, bool rectified, int64_t outputs, int64_t kernel, int64_t stride = 1);
  size_t pool(size_t in);
  size_t pairs(size_t in);
  size_t mix(int64_t channels, Tape::Mix terms);
  Tape::NormTerm learned_norm(size_t slot);  // with a scale and a shift of the weights
  Tape finish(size_t last, int64_t classes);

  const Tape::Slot& slot(size_t i) const { return tape_.slots.at(i); }

 private:
  size_t weight(const std::vector<int64_t>& shape);  // the next entry of the supernet's weights
  size_t add(const Tape::Slot& slot);

  Tape tape_;
  size_t next_weight_ = 0;
};

}  // namespace bilevel::nas
