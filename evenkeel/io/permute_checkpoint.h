// A placement built into a checkpoint: experts are renumbered so that plain contiguous expert parallelism,
// which every framework can do, puts each on the rank that the placement gives it.
//
// Problem     A Hugging Face safetensors checkpoint (indexed shards, or one model.safetensors) of a family
//             whose tensors are known (model/family.h), and a placement of equal sizes without copies;
//             wanted is the same model with expert contiguous_order(layer)[n] as its expert n.
// Method      Every output file is its input file with bytes of other places: an expert's tensors take those
//             of another expert, router rows and stacked experts are read in another order, tables of expert
//             ids get the new ones. Names, header, index, metadata and file sizes stay as they are, and
//             everything else is copied byte for byte.
// Cost        One read and one write of the checkpoint; memory for the headers and a buffer of 4 MiB,
//             whatever the size of a tensor.
// Guarantee   The output folder appears whole or not at all. What is not known to be free of expert ids is
//             refused before anything is written. Files and folders are open to nobody who cannot read those
//             that they are made from.
// Source      The papers' custom initialisation: MoETuner (arXiv 2502.06643). Tensor names:
//             docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct PermuteOptions {
  // Told of bytes written, of all there are, every few MiB. What it throws ends the work and leaves nothing.
  std::function<void(std::int64_t done, std::int64_t of)> progress = {};
};

struct PermutedCheckpoint {
  std::string family;       // its name in the table of families: "mixtral", ...
  std::vector<int> layers;  // those the placement was for: numbers in the model, dense layers counted
  // MoE layers that kept their order, since the placement is not for them: of multi-token prediction, or such
  // as nobody recorded.
  std::vector<int> kept_layers;
  std::int64_t num_files = 0;
  std::int64_t total_bytes = 0;
  std::int64_t tensors_permuted = 0;  // rows in another order, or ids of experts renumbered
  std::int64_t tensors_renamed = 0;   // bytes of another expert's tensor
  std::int64_t tensors_copied = 0;
  // Files beside the checkpoint that look like weights in other formats; they are copied, in the old order.
  std::vector<std::string> other_weights;
  // Folders that runs to the same place, killed before they could clean up, have left beside it.
  std::vector<std::string> leftovers;
};

// A placement that knows its layers is built into those that the checkpoint has too; the others stay as they
// are. One without numbers has a row for each MoE layer of the model, in order, with or without the layers of
// multi-token prediction at the end. `output` may be there if it is an empty folder. Throws
//   ParseError        the checkpoint is damaged or not whole
//   Unsupported       a family, or a tensor, that is not known; a config that names some experts by number
//   InvalidArgument   "placement": for other layers or experts, of unequal sizes, with copies;
//                     "output": not empty, inside the checkpoint, cannot be written
//   Infeasible        the model chooses groups of experts first, and the placement takes one apart
PermutedCheckpoint permute_checkpoint(const std::string& checkpoint, const Placement& placement,
                                      const std::string& output, const PermuteOptions& options = {});

}  // namespace evenkeel
