// Rows times one weight matrix, C[m, N] = A[m, K] B, for any m up to max_rows(), at the speed of a primitive
// made for m and with bits that do not depend on m.
//
// Problem    A oneDNN primitive is made for one row count and takes 0.2-1 ms to make, longer than many
//            products take; and primitives of different m may round differently.
// Method     Primitives for a ladder of row counts, made once. m rows run on the next rung, over rows of
//            padding whose results are thrown away. A self-test multiplies the same rows on every rung, at
//            another position than the reference rung did, and keeps those that agree bit by bit.
// Guarantee  With Bits::of_the_row_alone, and where bitwise() holds, a row of C depends on that row of A and
//            on B alone.
// Cost       Padding of at most 3 rows up to 128 and 7 above; the self-test runs each rung once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"

namespace evenkeel::internal {

class RowLadder {
 public:
  // How the plain weight matrix lies in memory.
  enum class Plain { out_by_in, in_by_out };  // B[n][k], B[k][n]

  // Whether a row's bits may depend on more than the row; only forward's may not.
  enum class Bits { any, of_the_row_alone };

  RowLadder(std::int64_t in, std::int64_t out, DataType type, Plain plain, Bits bits);

  static constexpr std::int64_t kMaxRows = 256;

  std::int64_t max_rows() const { return rungs_.back().rows; }
  std::int64_t packed_bytes() const { return static_cast<std::int64_t>(packed_.get_size()); }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void pack(const void* plain, std::byte* packed) const;
  // `a` and `c` (f32) must have room for kMaxRows rows: rows above m are read and written, and mean nothing.
  void run(std::int64_t m, const void* a, const std::byte* packed, float* c, std::byte* scratch) const;

  bool bitwise() const { return bitwise_; }
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Rung {
    std::int64_t rows;
    dnnl::matmul product;
    dnnl::memory::desc a, c, scratch;
  };
  struct Sample;

  Rung make_rung(std::int64_t rows) const;
  void run_rung(const Rung& rung, const void* a, const std::byte* packed, float* c, std::byte* scratch) const;
  const Rung& rung_for(std::int64_t m) const;
  void keep_agreeing_rungs();
  std::vector<std::size_t> agreeing(const Rung& reference, Sample& sample) const;

  std::int64_t in_;
  std::int64_t out_;
  DataType type_;
  dnnl::memory::desc plain_;
  dnnl::memory::desc packed_;
  std::vector<Rung> rungs_;  // ascending
  std::int64_t scratch_bytes_ = 0;
  bool bitwise_ = false;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace evenkeel::internal
