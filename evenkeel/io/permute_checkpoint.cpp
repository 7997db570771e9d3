#include "evenkeel/io/permute_checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/temporary_entry.h"
#include "evenkeel/plan/contiguous_order.h"

namespace evenkeel {

using namespace internal;

namespace {

namespace fs = std::filesystem;
constexpr std::size_t buffer_bytes = std::size_t{4} << 20;

// Paths relative to the folder, sorted. A link to a file counts as a file.
struct FolderFiles {
  std::vector<std::string> files;
  std::vector<std::string> folders;
};

// Lists everything but .git and .cache, where other tools keep records of the original download.
FolderFiles list_files(const std::string& folder) {
  FolderFiles found;
  try {
    if (!fs::is_directory(folder)) throw ParseError(folder, "", "is not a folder");
    for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
      const std::string name = at->path().lexically_relative(folder).string();
      if (name == ".git" || name == ".cache") {
        at.disable_recursion_pending();
      } else if (at->is_regular_file()) {
        found.files.push_back(name);
      } else if (at->is_directory() && !at->is_symlink()) {
        found.folders.push_back(name);
      } else {
        throw Unsupported(
            fmt::format("{}: is neither a file, a folder nor a link to a file, and cannot be copied",
                        at->path().string()));
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw ParseError(folder, "", "cannot be read: " + error.code().message());
  }
  std::ranges::sort(found.files);
  std::ranges::sort(found.folders);
  return found;
}

// Whether a file's name says that it may hold weights in a format that is not permuted.
bool may_be_weights(const std::string& file) {
  constexpr std::array<std::string_view, 5> endings{".safetensors", ".bin", ".pt", ".pth", ".gguf"};
  if (file.ends_with("training_args.bin")) return false;
  return std::ranges::any_of(endings, [&](std::string_view ending) { return file.ends_with(ending); });
}

// Whether a file may describe the quantization of single modules, such as quant_model_description.json.
bool may_speak_of_quantization(const std::string& file) {
  return file.find("quant") != std::string::npos && file.ends_with(".json") && !file.ends_with(index_ending);
}

// A checkpoint's config, tensor names and files, without the weights.
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

// The layers of a placement without layer numbers: the MoE layers among the hidden layers, or all MoE layers
// with those of multi-token prediction at the end. Throws if its number of rows fits neither.
std::vector<int> layers_by_count(const Model& model, const std::vector<int>& all,
                                 const Placement& placement) {
  const auto end = std::ranges::lower_bound(all, model.config.num_layers);
  const LayerNumbers hidden({all.begin(), end}), extra({end, all.end()});
  if (placement.num_layers() == std::ssize(all)) return all;
  if (placement.num_layers() == std::ssize(hidden.numbers())) return hidden.numbers();
  const std::size_t count = hidden.numbers().size();
  std::string why = fmt::format("has {} layers, but the checkpoint has {} MoE layers ({})",
                                placement.num_layers(), count, to_text(hidden));
  std::string allowed = fmt::format("one with {} layers", count);
  if (extra.known()) {
    why += fmt::format(" and {} for multi-token prediction ({})", extra.numbers().size(), to_text(extra));
    allowed += fmt::format(", or {}", all.size());
  }
  throw InvalidArgument("placement", why, allowed + "; leave out dense layers");
}

// The placement's rows for the checkpoint's MoE layers, with layer numbers.
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

// Group g of a model is its experts [g E / G, (g + 1) E / G). A token's experts come from the few groups
// whose best experts score highest, so a new order gives the same result only if it maps whole groups to
// whole groups. If it does not, throws Infeasible with `where` ("layer 3") and two experts of a split group.
void require_whole_groups(std::span<const ExpertId> order, const RoutingGroups& groups,
                          const std::string& where) {
  if (!groups.bind()) return;
  const std::size_t size = order.size() / static_cast<std::size_t>(groups.count);
  for (std::size_t id = 0; id < order.size(); ++id) {
    const std::size_t first = id / size * size;  // the first id of the new group
    const std::size_t group = order[id].offset() / size;
    const std::size_t expected = order[first].offset() / size;
    if (group == expected) continue;
    throw Infeasible(fmt::format(
        "{}: the placement would put expert {} of group {} and expert {} of group {} into one group (new ids "
        "{}..{}); the model first chooses {} of {} groups of {} experts, so its output would change; keep "
        "the experts of a group together: whole groups on a rank, or each group on ranks of its own",
        where, order[first].value(), expected, order[id].value(), group, first, first + size - 1,
        groups.chosen, groups.count, size));
  }
}

// The new order of experts, by the layer's number in the model.
using Orders = std::map<int, std::vector<ExpertId>>;

Orders orders_of(const Model& model, const Placement& placement) {
  if (placement.num_experts() != model.config.num_experts)
    throw InvalidArgument("placement", fmt::format("is for {} experts", placement.num_experts()),
                          fmt::format("one for the {} experts of the checkpoint", model.config.num_experts));
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

// If the checkpoint was permuted before, its map is composed with the new order.
ExpertMap map_of(const Model& model, const Placement& placement, const Orders& orders) {
  ExpertMap map{.num_experts = placement.num_experts(), .num_ranks = placement.num_ranks()};
  for (const auto& [layer, order] : orders) map.new_ids.emplace(layer, new_ids(order));
  const fs::path earlier = fs::path(model.folder) / expert_map_name;
  if (std::ranges::find(model.files.files, expert_map_name) == model.files.files.end()) return map;
  const ExpertMap before = read_expert_map(earlier.string());
  if (before.num_experts != map.num_experts)
    throw parse_error(earlier.string(), "num_experts", "is {}, but config.json says {}", before.num_experts,
                      map.num_experts);
  return composed(before, map);
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why, const std::string& allowed = "") {
  throw InvalidArgument("output", fmt::format("{} {}", path.string(), why), allowed);
}

// The absolute path, with symbolic links resolved in the part that exists.
fs::path resolved(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) refuse(path, "cannot be written: " + error.message());
  if (!full.has_filename()) full = full.parent_path();  // "out/"
  return full;
}

// Throws unless `place` is free or an empty folder. It must not be a mount point, since rename() cannot
// replace one.
void require_free(const fs::path& place) {
  struct stat here {};
  if (::lstat(place.c_str(), &here) != 0) return;
  if (!S_ISDIR(here.st_mode))
    refuse(place, "exists and is not a folder", "a folder that is empty or not there yet");
  std::error_code error;
  if (!fs::is_empty(place, error) || error)
    refuse(place, "is not empty", "a folder that is empty or not there yet");
  struct stat above {};
  if (::stat(place.parent_path().c_str(), &above) == 0 &&
      (above.st_dev != here.st_dev || above.st_ino == here.st_ino))
    refuse(place, "is where a file system is mounted", "a new folder inside it");
}

void require_outside(const fs::path& place, const fs::path& input) {
  const auto [in_input, in_place] = std::mismatch(input.begin(), input.end(), place.begin(), place.end());
  if (in_input == input.end()) refuse(place, "is the input or inside it", "a folder elsewhere");
}

// Makes a folder with the permissions of `other`, reduced by the umask; the owner can write. Returns 0 or an
// errno.
int make_folder_like(const char* name, const std::string& other) {
  return ::mkdir(name, mode_of(other).value_or(0) | 0700u) == 0 ? 0 : errno;
}

// A folder that appears whole or not at all: it has a temporary name until rename(). It gets the permissions
// of `input`, reduced to those of the empty folder at `path` if there is one.
TemporaryEntry output_folder(const std::string& path, const std::string& input) {
  const fs::path place = resolved(path);
  require_outside(place, resolved(input));
  require_free(place);
  const std::optional<unsigned> there = mode_of(place.string());
  try {
    return TemporaryEntry(place, [&](const char* name) {
      const int error = make_folder_like(name, input);
      if (error == 0 && there) static_cast<void>(::chmod(name, mode_of(name).value_or(0) & (*there | 0700u)));
      return error;
    });
  } catch (const std::system_error& error) {
    refuse(place, "cannot be made: " + describe_errno(error.code().value()));
  }
}

// Temporary folders that killed runs have left beside the output.
std::vector<std::string> leftovers_of(const TemporaryEntry& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.final_path().parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (TemporaryEntry::is_temporary_name(folder.final_path(), name) &&
        entry.path() != folder.temporary_path() && entry.is_directory(error))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found;
}

// Writes files from byte ranges of input files, and counts files and bytes.
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

  // The new file has the permissions of its source.
  void write(const std::string& file, const std::vector<ByteRange>& ranges) {
    AtomicFile out((output_ / file).string(), mode_of(path_of(file)).value_or(0600));
    for (const ByteRange& range : ranges) copy(range, out);
    out.commit();
    ++done_.num_files;
    report();
  }

  void write_copy(const std::string& file) {
    write(file, {{.file = file, .bytes = ByteSource(path_of(file)).size()}});
  }

 private:
  std::string path_of(const std::string& file) const { return (fs::path(model_.folder) / file).string(); }

  // The buffer size is a multiple of an id's size, so no id is split.
  void copy(ByteRange range, AtomicFile& out) {
    const std::string path = path_of(range.file);
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

  const Model& model_;
  const fs::path& output_;
  const PermuteOptions& options_;
  PermutedCheckpoint& done_;
  std::vector<std::byte> buffer_;
  std::optional<ByteSource> source_;  // the file read last
  std::int64_t total_ = 0;
  std::int64_t unreported_ = 0;
};

void write_all(const Model& model, const Renumbering& renumbering, const fs::path& output,
               const PermuteOptions& options, PermutedCheckpoint& done) {
  Writer writer(model, output, options, done);
  writer.make_folders();
  for (const std::string& file : model.files.files) {
    if (file == expert_map_name) continue;
    const auto weights = std::ranges::find(model.tensors.files, file, &WeightFile::name);
    if (weights != model.tensors.files.end()) {
      writer.write(file, renumbering.ranges(static_cast<std::size_t>(weights - model.tensors.files.begin())));
      continue;
    }
    writer.write_copy(file);
    if (may_be_weights(file)) done.other_weights.push_back(file);
  }
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

  TemporaryEntry folder = output_folder(output, checkpoint);
  done.leftovers = leftovers_of(folder);
  write_all(model, renumbering, folder.temporary_path(), options, done);
  {
    const ModeOfSources mode({(fs::path(checkpoint) / "config.json").string()});
    write_expert_map(map, (folder.temporary_path() / expert_map_name).string());
  }
  flush_folder(folder.temporary_path());
  if (const int error = folder.rename(); error != 0)
    refuse(folder.final_path(), "cannot be made: " + describe_errno(error));
  return done;
}

}  // namespace evenkeel
