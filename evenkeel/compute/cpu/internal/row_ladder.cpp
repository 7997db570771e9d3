#include "evenkeel/compute/cpu/internal/row_ladder.h"

#include <algorithm>
#include <cstring>

#include "evenkeel/base/check.h"
#include "evenkeel/base/hash.h"
#include "evenkeel/device/cpu/rows.h"

namespace evenkeel::internal {

using dnnl::memory;

namespace {

// oneDNN's number for an instruction set contains the bits of all instruction sets that this one includes.
bool has_amx() {
  const auto cpu = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  return (cpu & amx) == amx;
}

// Steps between row counts are small where a padding row costs as much as a real one. With AMX, which
// multiplies 16 rows at once, oneDNN takes several times as long for row counts with few divisors, so steps
// are larger.
std::vector<std::int64_t> ladder(DataType type) {
  std::vector<std::int64_t> rows = {1, 2};
  const std::int64_t fine = type == DataType::bf16 && has_amx() ? 4 : 2;
  for (std::int64_t m = 4; m < 128; m += fine) rows.push_back(m);
  for (std::int64_t m = 128; m < 256; m += 4) rows.push_back(m);
  for (std::int64_t m = 256; m <= kTileRows; m += 8) rows.push_back(m);
  return rows;
}

// Wide enough to hide the overhead of a call, narrow enough that a tile of rows of C stays in the L2 cache.
std::int64_t block_columns(std::int64_t out) {
  if (out <= RowLadder::kWidestBlock) return out;
  for (std::int64_t columns : {256, 320, 384, 192, 128})
    if (out % columns == 0) return columns;
  return 256;
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Fills with pseudo-random numbers, the same on every machine. They have many magnitudes, so that sums are
// rounded and another order of summation gives other bits, even though bf16 has few digits.
void fill_sample(std::vector<std::byte>& bytes, DataType type, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  const std::size_t count = bytes.size() / static_cast<std::size_t>(bytes_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = scale / static_cast<float>(1u << (next() >> 29));
    const float value = (static_cast<float>(next() >> 8) * 0x1p-23f - 1.0f) * magnitude;
    if (type == DataType::f32)
      std::memcpy(&bytes[4 * i], &value, 4);
    else
      reinterpret_cast<bf16*>(bytes.data())[i] = bf16(value);
  }
}

std::uint64_t fnv1a(std::span<const float> values) {
  Hash hash;
  for (const float value : values) hash.add(value);
  return hash.value();
}

}  // namespace

// The rows that the self-test multiplies.
struct RowLadder::Sample {
  std::vector<std::byte> a, plain, packed, scratch;
  std::vector<float> expected, actual;
};

RowLadder::RowLadder(std::int64_t in, std::int64_t out, DataType type, Plain plain, Bits bits)
    : in_(in), out_(out), type_(type), plain_(plain) {
  const OneThread alone;
  const std::int64_t columns = block_columns(out);
  blocks_ = (out + columns - 1) / columns;
  widths_.push_back(make_width(columns));
  if (out % columns != 0) widths_.push_back(make_width(out % columns));
  for (std::int64_t i = 0; i < blocks_; ++i) packed_bytes_ += width_of(i).packed_bytes();
  if (bits == Bits::any) return;
  bitwise_ = true;
  for (Width& width : widths_) keep_agreeing_rungs(width);
}

RowLadder::Width RowLadder::make_width(std::int64_t columns) const {
  Width width;
  width.columns = columns;
  const memory::dims strides = plain_ == Plain::out_by_in ? memory::dims{1, in_} : memory::dims{out_, 1};
  width.plain = memory::desc({in_, columns}, dnnl_type(type_), strides);
  width.packed = weights_of(columns);
  for (std::int64_t rows : ladder(type_)) width.rungs.push_back(make_rung(width, rows));
  return width;
}

// The layout that oneDNN prefers. Widened weights are row-major, which oneDNN prefers for f32 on such CPUs.
memory::desc RowLadder::weights_of(std::int64_t columns) const {
  if (widens()) return {{in_, columns}, memory::data_type::f32, memory::format_tag::ab};
  const memory::desc a({kTileRows, in_}, dnnl_type(type_), memory::format_tag::ab);
  const memory::desc b({in_, columns}, dnnl_type(type_), memory::format_tag::any);
  const memory::desc c({kTileRows, columns}, memory::data_type::f32, memory::format_tag::ab);
  return product_of(a, b, c, own_scratch()).weights_desc();
}

RowLadder::Rung RowLadder::make_rung(const Width& width, std::int64_t rows) const {
  const memory::desc a({rows, in_}, dnnl_type(product_type(type_)), memory::format_tag::ab);
  const memory::desc c({rows, width.columns}, memory::data_type::f32, memory::format_tag::ab);
  return {rows, Product(a, width.packed, c, own_scratch())};
}

std::int64_t RowLadder::max_rows(std::int64_t row_limit) const {
  if (row_limit == 1) return 1;
  std::int64_t rows = row_limit;
  for (const Width& width : widths_) {
    const auto beyond = std::ranges::upper_bound(width.rungs, row_limit, {}, &Rung::rows);
    rows = beyond == width.rungs.begin() ? 0 : std::min(rows, std::prev(beyond)->rows);
  }
  return rows;
}

std::int64_t RowLadder::scratch_bytes(std::int64_t row_limit) const {
  std::int64_t most = 0;
  for (const Width& width : widths_) {
    const Rung& alone = width.rungs.front();
    const std::int64_t aside = alone.rows > 1 ? copied_bytes(alone) + result_bytes(width, alone) : 0;
    most = std::max(most, aside + scratch_bytes(alone));
    for (const Rung& rung : width.rungs)
      if (rung.rows <= row_limit) most = std::max(most, scratch_bytes(rung));
  }
  return most;
}

std::int64_t RowLadder::scratch_bytes(const Rung& rung) const {
  return widened_bytes(rung.rows) + rung.product.scratch_bytes();
}

std::int64_t RowLadder::copied_bytes(const Rung& rung) const {
  return whole_lines(rung.rows * in_ * bytes_of(type_));
}

std::int64_t RowLadder::result_bytes(const Width& width, const Rung& rung) const {
  return whole_lines(rung.rows * width.columns * std::int64_t{sizeof(float)});
}

std::int64_t RowLadder::widened_bytes(std::int64_t rows) const {
  return widens() ? whole_lines(rows * in_ * std::int64_t{sizeof(float)}) : 0;
}

RowLadder::Block RowLadder::block(std::int64_t index) const {
  const std::int64_t begin = index * widest_block();
  return {begin, std::min(widest_block(), out_ - begin)};
}

const RowLadder::Width& RowLadder::width_of(std::int64_t block) const {
  return block + 1 < blocks_ ? widths_.front() : widths_.back();
}

std::int64_t RowLadder::Width::packed_bytes() const {
  return whole_lines(static_cast<std::int64_t>(packed.get_size()));
}

const RowLadder::Rung& RowLadder::Width::rung_for(std::int64_t m) const {
  const auto rung = std::ranges::lower_bound(rungs, m, {}, &Rung::rows);
  EVENKEEL_CHECK(rung != rungs.end());
  return *rung;
}

void RowLadder::pack_block(const Width& width, const std::byte* plain, std::byte* packed) const {
  if (widens())
    return widen_block(width, reinterpret_cast<const bf16*>(plain), reinterpret_cast<float*>(packed));
  const OneThread alone;
  require_memory_to_compile(kReorderMemory);
  const memory from = view(width.plain, plain);
  const memory to = view(width.packed, packed);
  dnnl::reorder(from, to).execute(cpu_stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void RowLadder::widen_block(const Width& width, const bf16* plain, float* packed) const {
  constexpr std::int64_t kColumns = 16;  // few enough that their lines of the plain matrix stay in the cache
  const bool transposed = plain_ == Plain::out_by_in;
  const std::int64_t to_next_row = transposed ? 1 : out_, to_next_column = transposed ? in_ : 1;
  for (std::int64_t begin = 0; begin < width.columns; begin += kColumns)
    for (std::int64_t k = 0; k < in_; ++k)
      for (std::int64_t n = begin; n < std::min(begin + kColumns, width.columns); ++n)
        packed[k * width.columns + n] = static_cast<float>(plain[k * to_next_row + n * to_next_column]);
}

void RowLadder::pack(const void* plain, std::byte* packed) const {
  const std::int64_t stride = plain_ == Plain::out_by_in ? in_ : 1;
  for (std::int64_t i = 0; i < blocks_; ++i) {
    const Width& width = width_of(i);
    const auto* columns = static_cast<const std::byte*>(plain) + block(i).begin * stride * bytes_of(type_);
    pack_block(width, columns, packed);
    packed += width.packed_bytes();
  }
}

void RowLadder::run_rung(const Rung& rung, const void* a, const std::byte* packed, float* c,
                         std::byte* scratch) const {
  if (widens()) {
    auto* const widened = reinterpret_cast<float*>(scratch);
    rows::to_f32(rung.rows * in_, a, type_, widened);
    a = widened;
    scratch += widened_bytes(rung.rows);
  }
  rung.product.run(a, packed, c, scratch);
}

void RowLadder::run(std::int64_t block, std::int64_t m, const void* a, const std::byte* packed, float* c,
                    std::byte* scratch) const {
  const Width& width = width_of(block);
  const Rung& rung = width.rung_for(m);
  packed += block * widths_.front().packed_bytes();
  if (m == 1 && rung.rows > 1) return run_alone(width, rung, a, packed, c, scratch);
  run_rung(rung, a, packed, c, scratch);
}

// The copied row is followed by space for the rung's other rows, whose content does not matter.
void RowLadder::run_alone(const Width& width, const Rung& rung, const void* a, const std::byte* packed,
                          float* c, std::byte* scratch) const {
  std::byte* const results = scratch + copied_bytes(rung);
  std::memcpy(scratch, a, static_cast<std::size_t>(in_ * bytes_of(type_)));
  run_rung(rung, scratch, packed, reinterpret_cast<float*>(results), results + result_bytes(width, rung));
  std::memcpy(c, results, static_cast<std::size_t>(width.columns) * sizeof(float));
}

void RowLadder::keep_agreeing_rungs(Width& width) {
  Sample sample;
  sample.a.resize(static_cast<std::size_t>(kTileRows * in_ * bytes_of(type_)));
  sample.plain.resize(width.plain.get_size());
  sample.packed.resize(width.packed.get_size());
  sample.scratch.resize(static_cast<std::size_t>(scratch_bytes()));
  sample.expected.resize(static_cast<std::size_t>(kTileRows * width.columns));
  sample.actual.resize(sample.expected.size());
  fill_sample(sample.a, type_, 1.0f);
  fill_sample(sample.plain, type_, 0.05f);
  pack_block(width, sample.plain.data(), sample.packed.data());

  std::vector<std::size_t> kept;
  std::uint64_t bits = 0;
  for (std::int64_t reference : {64, 192, 16}) {  // divisors of kTileRows
    std::vector<std::size_t> agree = agreeing(width, width.rung_for(reference), sample);
    if (agree.size() > kept.size()) {
      kept = std::move(agree);
      bits = fnv1a(sample.expected);
    }
    if (2 * kept.size() >= width.rungs.size()) break;
  }
  fingerprint_ = fingerprint_ * 31 + bits;
  bitwise_ = bitwise_ && !kept.empty();
  if (kept.empty()) return;
  std::vector<Rung> agreeing_rungs;
  for (std::size_t rung : kept) agreeing_rungs.push_back(std::move(width.rungs[rung]));
  width.rungs = std::move(agreeing_rungs);
}

// The rungs that give the sample's rows, at other positions, the same bits as the reference. None if even the
// reference's bits depend on a row's position.
std::vector<std::size_t> RowLadder::agreeing(const Width& width, const Rung& reference,
                                             Sample& sample) const {
  const auto row = [&](std::int64_t r) { return sample.a.data() + r * in_ * bytes_of(type_); };
  const auto run = [&](const Rung& rung, std::int64_t first, float* c) {
    run_rung(rung, row(first), sample.packed.data(), c, sample.scratch.data());
  };
  for (std::int64_t r = 0; r < kTileRows; r += reference.rows)
    run(reference, r, sample.expected.data() + r * width.columns);

  const auto agrees_at = [&](const Rung& rung, std::int64_t first) {
    run(rung, first, sample.actual.data());
    return std::memcmp(sample.actual.data(), sample.expected.data() + first * width.columns,
                       static_cast<std::size_t>(rung.rows * width.columns) * sizeof(float)) == 0;
  };
  std::vector<std::size_t> kept;
  if (!agrees_at(reference, 7)) return kept;
  // Another order of summation changes only some sums, so a rung with few rows is tested on many rows.
  constexpr std::int64_t kRows = 128;
  const auto agrees = [&](const Rung& rung) {
    const std::int64_t last = kTileRows - rung.rows;
    for (std::int64_t first = std::min<std::int64_t>(5, last); first <= std::min(kRows, last);
         first += rung.rows)
      if (!agrees_at(rung, first)) return false;
    return true;
  };
  for (std::size_t i = 0; i < width.rungs.size(); ++i)
    if (agrees(width.rungs[i])) kept.push_back(i);
  return kept;
}

}  // namespace evenkeel::internal
