// Predicts the alternative without expert parallelism (FSDP). Every rank computes its own tokens. For each
// layer it gathers the weights of all experts while it computes the previous layer, in forward and again in
// backward. Gradients are reduced and scattered.
//
// Seconds   A pass takes as long as the products of the slowest rank or the transfer of all weights,
//           whichever is longer.
// Memory    The weights of two layers, one of which is being received. In training also one layer's gradients
//           in f32, and the activations saved for backward.
// Source    Fully sharded data parallelism: Zhao et al., PyTorch FSDP, VLDB 2023.
#pragma once

#include "evenkeel/sim/layer_replay.h"

namespace evenkeel {

class GatheredLayer {
 public:
  // `setup` must know the layer's sizes and the machine, and must outlive this object.
  explicit GatheredLayer(const SimSetup& setup);
  const LayerOutcome& run(const LayerTokens& tokens);

 private:
  void add_pass(double products, double travelling);
  double products_seconds(const LayerTokens& tokens, bool backward) const;
  double exchange_seconds(double bytes_to_each, double& moved);

  const SimSetup& setup_;
  ExchangeSeconds exchange_;
  std::vector<double> bytes_, took_;
  LayerOutcome outcome_;
};

}  // namespace evenkeel
