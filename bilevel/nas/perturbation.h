#pragma once
// Deriving a genotype by asking the supernet (Wang et al. 2021, DARTS-PT): a large alpha need not mean a
// strong operation, so each choice in turn is decided by which operation the validation loss misses most when
// its weight is set to zero; the weights are tuned in between by the caller.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/genotype.h"

namespace bilevel::nas {

class PerturbationSelection {
 public:
  using Loss = std::function<double(const Tensor& mixture)>;

  // Choices are made in an order drawn from the seed: first all operations, then (DARTS and 1Shot1) which
  // edges a node keeps.
  PerturbationSelection(const SearchSpace& space, const Tensor& alpha, uint64_t seed);

  bool done() const { return next_ == order_.size(); }
  // Decides one choice and says which. A loss that is not finite counts as the largest; throws NotFiniteError
  // where none is finite.
  std::string choose_next(const Loss& loss);
  const Tensor& mixture() const { return mixture_; }  // softmax where nothing is decided yet
  Genotype genotype() const;                          // when done

 private:
  // One row of a block to decide (operations, or a node's parents), or a DARTS node whose edges are to be
  // thinned.
  struct Choice {
    std::string block;
    int64_t row = 0;          // first row of a node's edges for `thin`
    int64_t rows = 1;         // edges of the node for `thin`
    int64_t keep = 1;         // how many survive
    bool thin = false;        // whole edges compete, not entries of a row
    std::string shares = {};  // the block of the node's shares, for `thin`; empty = there is none
  };
  std::vector<int64_t> candidates(const Choice& choice) const;
  Tensor without(const Choice& choice, int64_t candidate) const;
  void decide(const Choice& choice, const std::vector<int64_t>& kept);
  // Of a node that is thinned: its operations, and its share where nodes weigh their inputs.
  void drop_edge(const Tensor& mixture, const Choice& choice, int64_t edge) const;

  SearchSpace space_;
  Tensor mixture_;
  std::vector<Choice> order_;
  size_t next_ = 0;
};

}  // namespace bilevel::nas
