// "Just do not use expert parallelism": every rank computes its own tokens, and gathers the weights of all
// experts for each layer, forward and again in backward, while the layer before is computed. Gradients are
// summed and scattered.
//
// Seconds  of a pass, what takes longer: the slowest rank's products, or all weights on their way.
// Memory   two layers' weights, of which one is on its way, and in training one layer's gradients in f32 and
//          the activations that backward wants.
// Source   fully sharded data parallelism: Zhao et al., PyTorch FSDP, VLDB 2023.
#pragma once

#include "evenkeel/sim/layer_replay.h"

namespace evenkeel {

class GatheredLayer {
 public:
  // The set-up knows layer and machine; it must outlive this.
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
