#include "evenkeel/compute/cpu/internal/row_ladder.h"

#include <algorithm>
#include <cstring>

#include "evenkeel/base/check.h"

namespace evenkeel::internal {

using dnnl::memory;

namespace {

std::vector<std::int64_t> ladder() {
  std::vector<std::int64_t> rows = {1, 2};
  for (std::int64_t m = 4; m < 128; m += 4) rows.push_back(m);
  for (std::int64_t m = 128; m <= RowLadder::kMaxRows; m += 8) rows.push_back(m);
  return rows;
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// A well-spread stand-in for random numbers; the same on every machine.
void fill_sample(std::vector<std::byte>& bytes, DataType type, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  const std::size_t count = bytes.size() / static_cast<std::size_t>(bytes_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f) * scale;
    if (type == DataType::f32)
      std::memcpy(&bytes[4 * i], &value, 4);
    else
      reinterpret_cast<bf16*>(bytes.data())[i] = bf16(value);
  }
}

std::uint64_t fnv1a(std::span<const float> values) {
  std::uint64_t hash = 14695981039346656037ull;
  for (std::byte byte : std::as_bytes(values))
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211ull;
  return hash;
}

}  // namespace

// The rows that the self-test multiplies.
struct RowLadder::Sample {
  std::vector<std::byte> a, plain, packed, scratch;
  std::vector<float> expected, actual;
};

RowLadder::RowLadder(std::int64_t in, std::int64_t out, DataType type, Plain plain, Bits bits)
    : in_(in),
      out_(out),
      type_(type),
      plain_({in, out}, dnnl_type(type),
             plain == Plain::out_by_in ? memory::format_tag::ba : memory::format_tag::ab) {
  const OneThread alone;
  const memory::desc a({kMaxRows, in}, dnnl_type(type), memory::format_tag::ab);
  const memory::desc b({in, out}, dnnl_type(type), memory::format_tag::any);
  const memory::desc c({kMaxRows, out}, memory::data_type::f32, memory::format_tag::ab);
  packed_ =
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), own_scratch(), cpu_engine()).weights_desc();
  for (std::int64_t rows : ladder()) rungs_.push_back(make_rung(rows));
  for (const Rung& rung : rungs_)
    scratch_bytes_ = std::max(scratch_bytes_, static_cast<std::int64_t>(rung.scratch.get_size()));
  if (bits == Bits::of_the_row_alone) keep_agreeing_rungs();
}

RowLadder::Rung RowLadder::make_rung(std::int64_t rows) const {
  const memory::desc a({rows, in_}, dnnl_type(type_), memory::format_tag::ab);
  const memory::desc c({rows, out_}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, packed_, c), own_scratch(), cpu_engine());
  return {rows, dnnl::matmul(made), a, c, made.scratchpad_desc()};
}

void RowLadder::pack(const void* plain, std::byte* packed) const {
  const OneThread alone;
  const memory from = view(plain_, plain);
  const memory to = view(packed_, packed);
  dnnl::reorder(from, to).execute(cpu_stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void RowLadder::run_rung(const Rung& rung, const void* a, const std::byte* packed, float* c,
                         std::byte* scratch) const {
  const OneThread alone;
  rung.product.execute(cpu_stream(), {{DNNL_ARG_SRC, view(rung.a, a)},
                                      {DNNL_ARG_WEIGHTS, view(packed_, packed)},
                                      {DNNL_ARG_DST, view(rung.c, c)},
                                      {DNNL_ARG_SCRATCHPAD, view(rung.scratch, scratch)}});
}

const RowLadder::Rung& RowLadder::rung_for(std::int64_t m) const {
  const auto rung = std::ranges::lower_bound(rungs_, m, {}, &Rung::rows);
  EVENKEEL_CHECK(rung != rungs_.end());
  return *rung;
}

void RowLadder::run(std::int64_t m, const void* a, const std::byte* packed, float* c,
                    std::byte* scratch) const {
  run_rung(rung_for(m), a, packed, c, scratch);
}

void RowLadder::keep_agreeing_rungs() {
  Sample sample;
  sample.a.resize(static_cast<std::size_t>(kMaxRows * in_ * bytes_of(type_)));
  sample.plain.resize(static_cast<std::size_t>(in_ * out_ * bytes_of(type_)));
  sample.packed.resize(static_cast<std::size_t>(packed_bytes()));
  sample.scratch.resize(static_cast<std::size_t>(scratch_bytes_));
  sample.expected.resize(static_cast<std::size_t>(kMaxRows * out_));
  sample.actual.resize(sample.expected.size());
  fill_sample(sample.a, type_, 1.0f);
  fill_sample(sample.plain, type_, 0.05f);
  pack(sample.plain.data(), sample.packed.data());

  std::vector<std::size_t> kept;
  for (std::int64_t reference : {64, 256, 16}) {
    std::vector<std::size_t> agree = agreeing(rung_for(reference), sample);
    if (agree.size() > kept.size()) {
      kept = std::move(agree);
      fingerprint_ = fnv1a(sample.expected);
    }
    if (2 * kept.size() >= rungs_.size()) break;
  }
  bitwise_ = !kept.empty();
  if (!bitwise_) return;
  std::vector<Rung> agreeing_rungs;
  for (std::size_t rung : kept) agreeing_rungs.push_back(std::move(rungs_[rung]));
  rungs_ = std::move(agreeing_rungs);
}

// The rungs that compute the sample's rows, at other positions, to the reference's bits; none if even the
// reference's own bits depend on a row's position.
std::vector<std::size_t> RowLadder::agreeing(const Rung& reference, Sample& sample) const {
  const auto row = [&](std::int64_t r) { return sample.a.data() + r * in_ * bytes_of(type_); };
  for (std::int64_t r = 0; r < kMaxRows; r += reference.rows)
    run_rung(reference, row(r), sample.packed.data(), sample.expected.data() + r * out_,
             sample.scratch.data());

  const auto agrees_at = [&](const Rung& rung, std::int64_t first) {
    run_rung(rung, row(first), sample.packed.data(), sample.actual.data(), sample.scratch.data());
    return std::memcmp(sample.actual.data(), sample.expected.data() + first * out_,
                       static_cast<std::size_t>(rung.rows * out_) * sizeof(float)) == 0;
  };
  std::vector<std::size_t> kept;
  if (reference.rows < kMaxRows && !agrees_at(reference, 7)) return kept;
  for (std::size_t i = 0; i < rungs_.size(); ++i)
    if (agrees_at(rungs_[i], std::min<std::int64_t>(5, kMaxRows - rungs_[i].rows))) kept.push_back(i);
  return kept;
}

}  // namespace evenkeel::internal
