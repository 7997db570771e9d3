#include "evenkeel/io/internal/checkpoint/renumbering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/dtype.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/plan/contiguous_order.h"

namespace evenkeel::internal {

namespace {

// Neighbours in one file become one range.
void append_range(const ByteRange& range, std::vector<ByteRange>& ranges) {
  if (range.bytes == 0) return;
  if (!ranges.empty() && ranges.back().file == range.file && ranges.back().ids == range.ids &&
      ranges.back().begin + ranges.back().bytes == range.begin) {
    ranges.back().bytes += range.bytes;
  } else {
    ranges.push_back(range);
  }
}

std::size_t width_of_ids(const SafetensorsTensor& tensor) {
  const DtypeNames* const type = find_dtype(&DtypeNames::safetensors, tensor.dtype);
  if (type != nullptr && is_integer(type->type) && tensor.bytes() % type->item_size == 0)
    return static_cast<std::size_t>(type->item_size);
  throw Unsupported(fmt::format("{} is a table of expert ids of type {}, which are no whole numbers",
                                tensor.name, tensor.dtype));
}

}  // namespace

void TensorSource::renumber(std::span<std::byte> ids, const std::string& file,
                            const std::string& name) const {
  for (std::size_t at = 0; at + id_bytes <= ids.size(); at += id_bytes) {
    std::uint64_t id = 0;
    std::memcpy(&id, &ids[at], id_bytes);
    if (id >= new_ids.size())
      throw parse_error(file, name,
                        "has a number that is no id of an expert: in {} bytes {:#x}; right would be 0..{}",
                        id_bytes, id, new_ids.size() - 1);
    const auto made = static_cast<std::uint64_t>(new_ids[id].value());
    std::memcpy(&ids[at], &made, id_bytes);
  }
}

Renumbering::Renumbering(const CheckpointTensors& checkpoint)
    : checkpoint_(checkpoint), sources_(checkpoint.tensors.size()) {
  for (std::size_t tensor = 0; tensor < sources_.size(); ++tensor) sources_[tensor].tensor = tensor;
}

void Renumbering::renumber(const MoeLayer& layer, std::span<const ExpertId> order) {
  if (std::ranges::is_sorted(order)) return;
  for (const auto& [part, tensors] : layer.by_expert)
    for (const auto& [id, tensor] : tensors)
      sources_[tensor].tensor = tensors.at(order[static_cast<std::size_t>(id)].value());
  for (const std::size_t tensor : layer.by_row) sources_[tensor].row_order = {order.begin(), order.end()};
  for (const std::size_t tensor : layer.id_tables) {
    sources_[tensor].new_ids = new_ids(order);
    sources_[tensor].id_bytes = width_of_ids(checkpoint_.tensors[tensor].at);
  }
}

std::vector<ByteRange> Renumbering::ranges(std::size_t file) const {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < checkpoint_.tensors.size(); ++i)
    if (checkpoint_.tensors[i].file == file) tensors.push_back(i);
  std::ranges::sort(tensors, {}, [&](std::size_t i) {
    return std::pair(checkpoint_.tensors[i].at.begin, checkpoint_.tensors[i].at.end);
  });
  std::vector<ByteRange> ranges;
  append_range({.file = file, .begin = 0, .bytes = checkpoint_.files[file].data_begin}, ranges);
  for (const std::size_t tensor : tensors) {
    const TensorSource& from = sources_[tensor];
    const StoredTensor& stored = checkpoint_.tensors[from.tensor];
    ByteRange rest = {.file = stored.file,
                      .begin = checkpoint_.files[stored.file].data_begin + stored.at.begin,
                      .bytes = stored.at.bytes(),
                      .ids = from.new_ids.empty() ? nullptr : &from};
    const std::int64_t begin = rest.begin;
    for (const ExpertId expert : from.row_order) {
      const std::int64_t row = stored.at.bytes() / num_rows(stored.at);
      append_range({.file = stored.file, .begin = begin + expert.value() * row, .bytes = row}, ranges);
      rest.begin += row;
      rest.bytes -= row;
    }
    // Rows of no expert stay behind.
    append_range(rest, ranges);
  }
  return ranges;
}

std::int64_t Renumbering::count_permuted() const {
  return std::ranges::count_if(
      sources_, [](const TensorSource& from) { return !from.row_order.empty() || !from.new_ids.empty(); });
}

std::int64_t Renumbering::count_renamed() const {
  std::int64_t count = 0;
  for (std::size_t tensor = 0; tensor < sources_.size(); ++tensor)
    count += sources_[tensor].tensor != tensor ? 1 : 0;
  return count;
}

}  // namespace evenkeel::internal
