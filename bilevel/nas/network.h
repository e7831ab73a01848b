#pragma once
// The network of one genotype, to be counted and trained from scratch: a pure function of flat weights, with
// learned norms whose running statistics are another flat vector.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/graph101.h"
#include "bilevel/nas/pass.h"
#include "bilevel/nas/space.h"

namespace bilevel::nas {

struct NetworkOptions {
  int64_t channels = 0;        // of the first stage; 0 = the space's own: 16, 128 (1Shot1), 36 or 48 (DARTS)
  int64_t cells = 0;           // as SupernetOptions::cells; 0 = 5 a stage, 9, 20 or, on ImageNet, 14
  int64_t input_channels = 3;  // of the images
  int64_t height = 32, width = 32;
  int64_t classes = 10;
  bool imagenet_stem = false;  // DARTS: three halvings before the first cell
  bool auxiliary = false;      // DARTS: a second head after two thirds of the cells, used in training

  NetworkOptions completed(SpaceKind kind) const;  // with the space's own where there is a 0
  void validate(SpaceKind kind) const;
};

struct NetworkOutput {
  Tensor logits;     // images x classes
  Tensor auxiliary;  // of the second head; undefined without one, and in testing
};

class Network {
 public:
  Network(const SearchSpace& space, Genotype genotype, NetworkOptions options);

  NetworkOutput forward(const Tensor& w, const Tensor& images, const PassOptions& pass_options) const;

  // The trained network on images, by plain operations: with weights and running statistics apart, in the
  // plan's order. This is what a trace records.
  Tensor tested(std::vector<Tensor> weights, std::vector<Tensor> statistics, const Tensor& images) const;

  SpaceKind kind() const { return kind_; }
  const Genotype& genotype() const { return genotype_; }
  const NetworkOptions& options() const { return options_; }
  const NetworkPlan& plan() const { return plan_; }
  int64_t parameters() const {
    return plan_.parameters() - auxiliary_parameters_;
  }  // without the second head
  int64_t multiply_adds() const { return plan_.multiply_adds - auxiliary_multiply_adds_; }

 private:
  NetworkOutput walk(Pass& pass, const Feature& images) const;

  SpaceKind kind_;
  Genotype genotype_;
  Graph101 cell101_;  // NAS-Bench-1Shot1: the genotype without loose ends
  NetworkOptions options_;
  NetworkPlan plan_;
  int64_t auxiliary_parameters_ = 0, auxiliary_multiply_adds_ = 0;
};

// The walks that fill a page; network_*.cpp, and network_nasbench101.h.
Feature walk_network201(Pass& pass, const Genotype& genotype, const NetworkOptions& options,
                        const Feature& images);
struct DartsOutput {
  Feature logits, auxiliary;
};
DartsOutput walk_network_darts(Pass& pass, const Genotype& genotype, const NetworkOptions& options,
                               const Feature& images);

}  // namespace bilevel::nas
