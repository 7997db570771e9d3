#include "evenkeel/io/internal/checkpoint/renumbering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/dtype.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/plan/contiguous_order.h"

namespace evenkeel::internal {

namespace {

bool is_identity(std::span<const ExpertId> order) {
  for (std::size_t id = 0; id < order.size(); ++id)
    if (order[id].offset() != id) return false;
  return true;
}

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

std::int64_t width_of_ids(const SafetensorsTensor& tensor) {
  const DtypeNames* const type = find_dtype(&DtypeNames::safetensors, tensor.dtype);
  if (type != nullptr && is_integer(type->type) && tensor.bytes() % type->item_size == 0)
    return type->item_size;
  throw Unsupported(fmt::format("{} is a table of expert ids of type {}, which are no whole numbers",
                                tensor.name, tensor.dtype));
}

}  // namespace

void IdTable::renumber(std::span<std::byte> bytes, const std::string& file) const {
  const std::size_t step = static_cast<std::size_t>(width);
  for (std::size_t at = 0; at + step <= bytes.size(); at += step) {
    std::uint64_t id = 0;
    std::memcpy(&id, &bytes[at], step);
    if (id >= new_ids.size())
      throw parse_error(file, tensor,
                        "has a number that is no id of an expert: in {} bytes {:#x}; right would be "
                        "0..{}",
                        width, id, new_ids.size() - 1);
    const auto made = static_cast<std::uint64_t>(new_ids[id].value());
    std::memcpy(&bytes[at], &made, step);
  }
}

Renumbering::Renumbering(const CheckpointTensors& checkpoint)
    : checkpoint_(checkpoint), source_(checkpoint.tensors.size()), row_order_(checkpoint.tensors.size()) {
  std::iota(source_.begin(), source_.end(), std::size_t{0});
}

void Renumbering::renumber(const MoeLayer& layer, std::span<const ExpertId> order) {
  if (is_identity(order)) return;
  for (const auto& part : layer.by_expert)
    for (std::size_t id = 0; id < order.size(); ++id) source_[part[id]] = part[order[id].offset()];
  for (const std::size_t tensor : layer.by_row) row_order_[tensor] = order;
  for (const std::size_t tensor : layer.id_tables) {
    const SafetensorsTensor& at = checkpoint_.tensors[tensor].at;
    id_tables_[tensor] = {.tensor = at.name, .width = width_of_ids(at), .new_ids = new_ids(order)};
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
  for (const std::size_t tensor : tensors) append(tensor, ranges);
  return ranges;
}

void Renumbering::append(std::size_t tensor, std::vector<ByteRange>& ranges) const {
  const StoredTensor& source = checkpoint_.tensors[source_[tensor]];
  const std::int64_t begin = checkpoint_.files[source.file].data_begin + source.at.begin;
  if (const auto ids = id_tables_.find(tensor); ids != id_tables_.end())
    return append_range(
        {.file = source.file, .begin = begin, .bytes = source.at.bytes(), .ids = &ids->second}, ranges);
  const auto order = row_order_[tensor];
  if (order.empty())
    return append_range({.file = source.file, .begin = begin, .bytes = source.at.bytes()}, ranges);
  const std::int64_t row = source.at.bytes() / num_rows(source.at);
  for (const ExpertId expert : order)
    append_range({.file = source.file, .begin = begin + expert.value() * row, .bytes = row}, ranges);
  // Rows of no expert stay behind.
  const std::int64_t moved = row * std::ssize(order);
  append_range({.file = source.file, .begin = begin + moved, .bytes = source.at.bytes() - moved}, ranges);
}

std::int64_t Renumbering::count_permuted() const {
  return std::ranges::count_if(row_order_, [](const auto& order) { return !order.empty(); }) +
         std::ssize(id_tables_);
}

std::int64_t Renumbering::count_renamed() const {
  std::int64_t count = 0;
  for (std::size_t tensor = 0; tensor < source_.size(); ++tensor) count += source_[tensor] != tensor ? 1 : 0;
  return count;
}

}  // namespace evenkeel::internal
