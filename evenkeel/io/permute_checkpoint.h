// Builds a placement into a checkpoint. Experts are renumbered so that plain contiguous expert parallelism,
// which every framework can do, puts each expert on the rank that the placement gives it.
//
// Problem     Input is a Hugging Face safetensors checkpoint (indexed shards, or one model.safetensors) of a
//             family whose tensors are known (model/family.h), and a placement without copies whose ranks
//             hold equally many experts. Output is the same model with expert contiguous_order(layer)[n] as
//             its expert n.
// Method      Every output file is a copy of its input file in which some bytes move. An expert's tensors get
//             the bytes of another expert, router rows and stacked experts change their order, and tables of
//             expert ids get the new ids. Names, header, index, metadata and file sizes stay the same. All
//             other bytes are copied.
// Cost        One read and one write of the checkpoint; memory for the headers and a buffer of 4 MiB,
//             whatever the size of a tensor.
// Guarantee   The output folder appears whole or not at all. If a checkpoint has unknown tensors or keys that
//             might contain expert ids, it is refused before anything is written. Output files and folders
//             can be read only by users who can read their sources.
// Source      The custom initialisation in MoETuner (arXiv 2502.06643). Tensor names: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel {

struct PermuteOptions {
  // Called every few MiB with the bytes written and the total. An exception from it stops the work and
  // removes the output.
  std::function<void(std::int64_t done, std::int64_t of)> progress = {};
};

struct PermutedCheckpoint {
  std::string family;       // the model's family in the table of families: "mixtral", ...
  std::vector<int> layers;  // the placed layers, by their number in the model (dense layers count)
  // MoE layers whose experts kept their order, since the placement lacks these layers: layers of multi-token
  // prediction, or layers that were not recorded.
  std::vector<int> kept_layers;
  std::int64_t num_files = 0;
  std::int64_t total_bytes = 0;
  std::int64_t tensors_permuted = 0;  // tensors that got another order of rows, or new expert ids
  std::int64_t tensors_renamed = 0;   // tensors that got the bytes of another expert's tensor
  std::int64_t tensors_copied = 0;
  // Files in the folder that look like weights in other formats; they are copied with the old expert order.
  std::vector<std::string> other_weights;
  // Temporary folders beside the output, left by earlier runs that were killed.
  std::vector<std::string> leftovers;
};

// If the placement has layer numbers, the checkpoint's layers with these numbers are permuted and the others
// stay as they are. Without numbers the placement must have a row for each MoE layer of the model, in order,
// with or without the layers of multi-token prediction at the end. `output` may exist if it is an empty
// folder. Throws
//   ParseError        the checkpoint is damaged or incomplete
//   Unsupported       an unknown family or tensor; a config that names single experts by number
//   InvalidArgument   "placement": for other layers or experts, of unequal sizes, with copies;
//                     "output": not empty, inside the checkpoint, cannot be written
//   Infeasible        the model's router chooses groups of experts first, and the placement splits a group
PermutedCheckpoint permute_checkpoint(const std::string& checkpoint, const Placement& placement,
                                      const std::string& output, const PermuteOptions& options = {});

}  // namespace evenkeel
