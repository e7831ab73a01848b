#pragma once
// A network as a list of few, large operations, each of which has its forward pass, its backward pass and
// the tangents of both written out (passes.h): what a graph of automatic differentiation spreads over
// thousands of small kernels is a few hundred here, and a Hessian product is two passes instead of a backward
// pass through a backward pass.

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "bilevel/core/layout.h"
#include "bilevel/nas/convolution.h"
#include "bilevel/nas/network.h"
#include "bilevel/nas/supernet.h"

namespace bilevel::nas {

struct Tape {
  // What operations read and write; slot 0 holds the images.
  struct Slot {
    int64_t channels = 0, height = 0, width = 0;
    bool rectified = false;  // max(value, 0) is wanted too
  };

  // `rectified`: of max(value, 0) instead of the value.
  struct Convolve {
    size_t in = 0, out = 0;
    bool rectified = false;
    size_t weight = 0;  // which entry of the weights
    ConvolutionForm form;
  };
  // Of each channel on its own, in as many copies as the weights have: channel c of `out` reads channel
  // c % channels of `in`. Kernels of 3 and 5.
  struct Depthwise {
    size_t in = 0, out = 0;
    bool rectified = false;
    size_t weight = 0;
    ConvolutionForm form;
  };
  struct Pool {  // 3 x 3 average, stride 1, padding not counted
    size_t in = 0, out = 0;
  };
  struct AveragePool {  // any other; `whole`: a last row or column that fills no window stands alone
    size_t in = 0, out = 0;
    int64_t kernel = 2, stride = 2, padding = 0;
    bool whole = false;
  };
  struct MaxPool {
    size_t in = 0, out = 0;
    int64_t kernel = 3, stride = 1, padding = 1;
  };
  struct Shift {  // of max(value, 0), without the first row and column (shift_by_one in pass.h)
    size_t in = 0, out = 0;
  };
  struct Concatenate {
    struct Part {
      size_t slot = 0;
      int64_t channel = 0, channels = 0;
    };
    std::vector<Part> parts = {};
    size_t out = 0;
  };
  // A norm by the batch's statistics of `channels of out` channels of a slot, from `channel` on, times one
  // weight of the mixture (`choice`), or times a learned scale plus a learned shift, whose entries have a
  // number per channel of the slot. No two terms share a channel.
  struct NormTerm {
    size_t slot = 0;
    int64_t channel = 0;
    std::optional<size_t> choice = std::nullopt, scale = std::nullopt, shift = std::nullopt;
  };
  struct PlainTerm {
    size_t slot = 0;
    std::optional<size_t> choice = std::nullopt;
    bool rectified = false;
  };
  struct Mix {  // the sum of its terms
    size_t out = 0;
    std::vector<NormTerm> norms = {};
    std::vector<PlainTerm> plains = {};
  };
  using Operation = std::variant<Convolve, Depthwise, Pool, AveragePool, MaxPool, Shift, Concatenate, Mix>;

  std::vector<Slot> slots;
  std::vector<Operation> operations;
  // At the end: the value of `last`, or max(value, 0), averaged over the pixels, into a linear layer.
  size_t last = 0, linear = 0, bias = 0;
  bool last_rectified = false;
  Layout weights;
  size_t choices = 0;  // of the mixture
};

// nullopt for the plain form of a supernet and for partial channels. Throws std::logic_error where the tape's
// weights are not the supernet's.
std::optional<Tape> record(const Supernet& supernet);
// The network of one genotype, without choices; nullopt where there is no tape for it.
std::optional<Tape> record(const Network& network);
Tape record_nasbench201(const Supernet& supernet);  // tape_nasbench201.cpp
std::optional<Tape> record_nasbench201(const Network& network);
Tape record_nasbench1shot1(const Supernet& supernet);  // tape_nasbench1shot1.cpp
Tape record_darts(const Supernet& supernet);           // tape_darts.cpp

// The slots that norms with learned scales are of, in the order of their entries in the weights.
std::vector<size_t> learned_norms(const Tape& tape);

// Writes a tape: every call adds an operation and returns its slot.
class TapeWriter {
 public:
  // Of the images; `weights` is the layout that the network's own walk makes, in whose order entries are
  // taken.
  TapeWriter(Layout weights, int64_t choices, int64_t channels, int64_t height, int64_t width);

  struct Kernel {
    int64_t size = 3, stride = 1, dilation = 1, groups = 1;
  };
  size_t convolve(size_t in, bool rectified, int64_t outputs, const Kernel& kernel);
  size_t depthwise(size_t in, bool rectified, int64_t copies, const Kernel& kernel);
  size_t pool(size_t in, int64_t stride = 1);  // 3 x 3 average
  size_t pairs(size_t in);
  size_t max_pool(size_t in, int64_t kernel, int64_t stride, int64_t padding);
  size_t shift(size_t in);
  size_t concatenate(std::vector<Tape::Concatenate::Part> parts);
  size_t concatenate_all(const std::vector<size_t>& slots);
  size_t mix(int64_t channels, Tape::Mix terms);
  size_t normed(size_t slot);   // without scale and shift
  size_t learned(size_t slot);  // with a scale and a shift of the weights
  Tape::PlainTerm rectified(size_t slot, std::optional<size_t> choice = std::nullopt);
  Tape::NormTerm learned_norm(size_t slot);  // the term of `learned`
  Tape finish(size_t last, bool rectified, int64_t classes);

  const Tape::Slot& slot(size_t i) const { return tape_.slots.at(i); }
  // Where a block of alpha begins in the mixture.
  static size_t first_choice(const SearchSpace& space, std::string_view block);

 private:
  size_t weight(const std::vector<int64_t>& shape);  // the next entry of the supernet's weights
  size_t add(const Tape::Slot& slot);

  Tape tape_;
  size_t next_weight_ = 0;
};

}  // namespace bilevel::nas
