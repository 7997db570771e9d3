#include "evenkeel/io/permute_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"
#include "evenkeel/io/internal/checkpoint/folders.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/renumbering.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/plan/contiguous_order.h"

namespace evenkeel {

using namespace internal;

namespace {

namespace fs = std::filesystem;
constexpr std::size_t buffer_bytes = std::size_t{4} << 20;

// A checkpoint as far as its names tell.
struct Model {
  std::string folder;
  CheckpointConfig config;
  CheckpointTensors tensors;
  std::vector<MoeLayer> layers;
  FolderFiles files;
};

Model read_model(const std::string& folder) {
  Model model{.folder = folder, .config = {}, .tensors = {}, .layers = {}, .files = list_files(folder)};
  model.config = read_checkpoint_config(folder);
  for (const std::string& file : model.files.files)
    if (may_speak_of_quantization(file)) {
      const ByteSource source((fs::path(folder) / file).string());
      require_all_or_no_experts(read_config_json(source), model.config.num_experts, source.name());
    }
  model.tensors = read_checkpoint_tensors(folder);
  model.layers = find_moe_layers(model.tensors, model.config, folder);
  return model;
}

// A placement without layer numbers has a row for each MoE layer within the model's hidden layers, or also
// for those of multi-token prediction, which come after.
std::vector<int> layers_by_count(const Model& model, const std::vector<int>& all,
                                 const Placement& placement) {
  const auto end = std::ranges::lower_bound(all, model.config.num_layers);
  const LayerNumbers hidden({all.begin(), end}), extra({end, all.end()});
  if (placement.num_layers() == std::ssize(all)) return all;
  if (placement.num_layers() == std::ssize(hidden.numbers())) return hidden.numbers();
  const std::size_t count = hidden.numbers().size();
  std::string why = fmt::format("{} layers, where the checkpoint has {} MoE layers ({})",
                                placement.num_layers(), count, to_text(hidden));
  std::string allowed = fmt::format("{} layers", count);
  if (extra.known()) {
    why += fmt::format(" and {} for multi-token prediction ({})", extra.numbers().size(), to_text(extra));
    allowed += fmt::format(", or {}", all.size());
  }
  throw InvalidArgument("placement", why, allowed + "; dense layers have none");
}

// The placement's rows for those of the checkpoint's MoE layers that it is for, numbered.
Placement placed_layers(const Model& model, const Placement& placement) {
  std::vector<int> all;
  for (const MoeLayer& layer : model.layers) all.push_back(layer.layer);
  const LayerNumbers& known = placement.layers();
  if (!known.known()) return placement.numbered(LayerNumbers(layers_by_count(model, all, placement)));
  std::vector<int> placed;
  std::ranges::set_intersection(all, known.numbers(), std::back_inserter(placed));
  const LayerNumbers wanted(placed.empty() ? all : placed);
  return placement.paired_with({"the checkpoint", wanted, static_cast<int>(wanted.numbers().size())}, "it",
                               "placement");
}

// By the layer's number in the model.
using Orders = std::map<int, std::vector<ExpertId>>;

Orders orders_of(const Model& model, const Placement& placement) {
  if (placement.num_experts() != model.config.num_experts)
    throw InvalidArgument("placement", fmt::format("is for {} experts", placement.num_experts()),
                          fmt::format("one for the {} of the checkpoint", model.config.num_experts));
  const Placement placed = placed_layers(model, placement);
  Orders orders;
  for (int row = 0; row < placed.num_layers(); ++row) {
    const int number = placed.layers().number_of(row);
    auto order = contiguous_order(placed.layer(row), fmt::format("layer {}: ", row));
    require_whole_groups(order, model.config.groups,
                         fmt::format("layer {} (layer {} of the model)", row, number));
    orders.emplace(number, std::move(order));
  }
  return orders;
}

// The order that a run before this one has left beside the checkpoint goes on in the new one.
ExpertMap map_of(const Model& model, const Placement& placement, const Orders& orders) {
  ExpertMap map{.num_experts = placement.num_experts(), .num_ranks = placement.num_ranks()};
  for (const auto& [layer, order] : orders) map.new_ids.emplace(layer, new_ids(order));
  const fs::path earlier = fs::path(model.folder) / expert_map_name;
  if (std::ranges::find(model.files.files, expert_map_name) == model.files.files.end()) return map;
  const ExpertMap before = read_expert_map(earlier.string());
  if (before.num_experts != map.num_experts)
    throw parse_error(earlier.string(), "num_experts", "is {}, and config.json says {}", before.num_experts,
                      map.num_experts);
  return composed(before, map);
}

// Writes files from ranges of others, and counts.
class Writer {
 public:
  Writer(const Model& model, const fs::path& output, const PermuteOptions& options, PermutedCheckpoint& done)
      : model_(model), output_(output), options_(options), done_(done), buffer_(buffer_bytes) {
    for (const std::string& file : model.files.files)
      if (file != expert_map_name) total_ += ByteSource(path_of(file)).size();
  }

  void make_folders() const {
    for (const std::string& folder : model_.files.folders)
      if (const int error = make_folder_like((output_ / folder).c_str(), path_of(folder)); error != 0)
        throw InvalidArgument((output_ / folder).string(), "cannot be made: " + describe_errno(error));
  }

  void write_weights(const Renumbering& renumbering, std::size_t file) {
    AtomicFile out = new_file(model_.tensors.files[file].name);
    for (const ByteRange& range : renumbering.ranges(file))
      copy(path_of(model_.tensors.files[range.file].name), range, out);
    finish(out);
  }

  void write_copy(const std::string& file) {
    AtomicFile out = new_file(file);
    copy(path_of(file), {.bytes = ByteSource(path_of(file)).size()}, out);
    finish(out);
  }

 private:
  std::string path_of(const std::string& file) const { return (fs::path(model_.folder) / file).string(); }

  // Open to whoever may read its source.
  AtomicFile new_file(const std::string& file) const {
    return AtomicFile((output_ / file).string(), mode_of(path_of(file)).value_or(0600));
  }

  // The buffer holds whole ids.
  void copy(const std::string& path, ByteRange range, AtomicFile& out) {
    if (!source_ || source_->name() != path) source_.emplace(path);
    while (range.bytes > 0) {
      const auto piece = std::span(buffer_).first(
          static_cast<std::size_t>(std::min<std::int64_t>(range.bytes, std::ssize(buffer_))));
      source_->read(range.begin, piece);
      if (range.ids != nullptr)
        range.ids->renumber(piece, path, model_.tensors.tensors[range.ids->tensor].at.name);
      out.write(piece);
      range.begin += std::ssize(piece);
      range.bytes -= std::ssize(piece);
      done_.total_bytes += std::ssize(piece);
      unreported_ += std::ssize(piece);
      if (unreported_ >= std::ssize(buffer_)) report();
    }
  }

  void report() {
    unreported_ = 0;
    if (options_.progress) options_.progress(done_.total_bytes, total_);
  }

  void finish(AtomicFile& out) {
    out.commit();
    ++done_.num_files;
    report();
  }

  const Model& model_;
  const fs::path& output_;
  const PermuteOptions& options_;
  PermutedCheckpoint& done_;
  std::vector<std::byte> buffer_;
  std::optional<ByteSource> source_;  // the last that was read
  std::int64_t total_ = 0;
  std::int64_t unreported_ = 0;
};

void write_all(const Model& model, const Renumbering& renumbering, const fs::path& output,
               const PermuteOptions& options, PermutedCheckpoint& done) {
  Writer writer(model, output, options, done);
  writer.make_folders();
  for (const std::string& file : model.files.files) {
    const bool is_weights =
        std::ranges::find(model.tensors.files, file, &WeightFile::name) != model.tensors.files.end();
    if (is_weights || file == expert_map_name) continue;
    writer.write_copy(file);
    if (may_be_weights(file)) done.other_weights.push_back(file);
  }
  for (std::size_t file = 0; file < model.tensors.files.size(); ++file)
    writer.write_weights(renumbering, file);
}

}  // namespace

PermutedCheckpoint permute_checkpoint(const std::string& checkpoint, const Placement& placement,
                                      const std::string& output, const PermuteOptions& options) {
  const Model model = read_model(checkpoint);
  const Orders orders = orders_of(model, placement);
  const ExpertMap map = map_of(model, placement, orders);
  PermutedCheckpoint done;
  done.family = model.config.family->name();
  Renumbering renumbering(model.tensors);
  for (const MoeLayer& layer : model.layers) {
    const auto order = orders.find(layer.layer);
    (order == orders.end() ? done.kept_layers : done.layers).push_back(layer.layer);
    if (order != orders.end()) renumbering.renumber(layer, order->second);
  }
  done.tensors_permuted = renumbering.count_permuted();
  done.tensors_renamed = renumbering.count_renamed();
  done.tensors_copied = std::ssize(model.tensors.tensors) - done.tensors_permuted - done.tensors_renamed;

  Unfinished folder = output_folder(output, checkpoint);
  done.leftovers = leftovers_of(folder);
  write_all(model, renumbering, folder.beside(), options, done);
  {
    const ModeOfSources mode({(fs::path(checkpoint) / "config.json").string()});
    write_expert_map(map, (folder.beside() / expert_map_name).string());
  }
  commit(folder);
  return done;
}

}  // namespace evenkeel
