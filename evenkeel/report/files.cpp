#include "evenkeel/report/files.h"

#include <fmt/ranges.h>

#include "evenkeel/base/bytes.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel {

std::string to_json(const Conversion& conversion) {
  const Converted& done = conversion.done;
  using internal::Json;
  Json json = {{"input", conversion.input},
               {"output", conversion.output},
               {"what", done.what},
               {"from", done.from},
               {"to", done.to}};
  if (done.layers.known()) json["layers"] = done.layers.numbers();
  std::map<std::string, std::string> axes;
  if (!done.axes.empty()) axes[conversion.input] = done.axes;
  return internal::line_of(std::move(json), axes);
}

std::string to_text(const Conversion& conversion) {
  const Converted& done = conversion.done;
  internal::Page page;
  page.put("{}: {}, {} -> {}\n", conversion.output, done.what, done.from, done.to);
  if (done.layers.known())
    page.put("  {} MoE layers of the model: {}\n", done.layers.numbers().size(), to_text(done.layers));
  return std::move(page).text();
}

std::string to_json(const Permutation& permutation) {
  const PermutedCheckpoint& done = permutation.done;
  return internal::line_of({{"checkpoint", permutation.checkpoint},
                            {"output", permutation.output},
                            {"family", done.family},
                            {"layers", done.layers},
                            {"kept_layers", done.kept_layers},
                            {"num_experts", permutation.num_experts},
                            {"num_ranks", permutation.num_ranks},
                            {"files", done.num_files},
                            {"bytes", done.total_bytes},
                            {"tensors",
                             {{"permuted", done.tensors_permuted},
                              {"renamed", done.tensors_renamed},
                              {"copied", done.tensors_copied}}},
                            {"other_weights", done.other_weights},
                            {"leftovers", done.leftovers}});
}

std::string to_text(const Permutation& permutation) {
  const PermutedCheckpoint& done = permutation.done;
  internal::Page page;
  page.put("{}: {}, {} experts on {} ranks, {} MoE layers; {} in {} files\n", permutation.output, done.family,
           permutation.num_experts, permutation.num_ranks, done.layers.size(), format_bytes(done.total_bytes),
           done.num_files);
  page.put("tensors: {} renamed, {} with rows permuted, {} as they were; the map is in {}\n",
           done.tensors_renamed, done.tensors_permuted, done.tensors_copied, expert_map_name);
  return std::move(page).text();
}

std::vector<std::string> notes_of(const Permutation& permutation) {
  const PermutedCheckpoint& done = permutation.done;
  std::vector<std::string> notes;
  if (!done.kept_layers.empty())
    notes.push_back(fmt::format("layers {} keep their order: the placement does not cover them",
                                to_text(LayerNumbers(done.kept_layers))));
  if (!done.other_weights.empty())
    notes.push_back(fmt::format("copied unchanged (any weights in them keep the old order): {}",
                                fmt::join(done.other_weights, ", ")));
  if (!done.leftovers.empty())
    notes.push_back(fmt::format("left by killed runs; delete them if no run is active: {}",
                                fmt::join(done.leftovers, ", ")));
  return notes;
}

}  // namespace evenkeel
