// The alternative without expert parallelism (FSDP). Every rank computes its own tokens. It gathers the
// weights of all experts for each layer, in forward and again in backward, while the previous layer is
// computed. Gradients are reduced and scattered.
//
// Seconds   Of a pass: the slower of the slowest rank's products and the transfer of all weights.
// Memory    The weights of two layers, one of them in transit; in training also one layer's gradients in f32
//           and the activations saved for backward.
// Source    Fully sharded data parallelism: Zhao et al., PyTorch FSDP, VLDB 2023.
#pragma once

#include "evenkeel/sim/layer_replay.h"

namespace evenkeel {

class GatheredLayer {
 public:
  // `setup` must know layer and machine, and must outlive this.
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
