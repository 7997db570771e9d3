// Rows times one weight matrix, C[m, N] = A[m, K] B, for any m up to max_rows(), at the speed of a primitive
// made for m and with bits that do not depend on m.
//
// Problem    A oneDNN primitive is made for one row count and takes 0.1-1 ms to make, longer than many
//            products take; primitives of different m may round differently; and C in f32, made whole, has
//            left the cache before it is used.
// Method     Primitives for a ladder of row counts, made once. m rows run on the next rung, over rows of
//            padding whose results are thrown away. B's columns are cut into blocks of one width, the last
//            perhaps narrower, one product each, with a ladder for each width. A self-test multiplies the
//            same rows on every rung, at another position than a reference rung did, and keeps those that
//            agree bit by bit. Where bf16 is widened, weights are when they are packed, and rows before
//            each product.
// Guarantee  With Bits::of_the_row_alone, and where bitwise() holds, a row of C depends on that row of A and
//            on B alone.
// Cost       Padding of at most 1 row up to 128 rows (bf16 with AMX: 3), 3 up to 256, 7 above; more where
//            rungs were dropped. The self-test runs each rung once for a width and a reference, on one block:
//            where most agree with the first reference, once in all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"

namespace evenkeel::internal {

class RowLadder {
 public:
  // No block has more columns.
  static constexpr std::int64_t kWidestBlock = 384;

  // How the plain weight matrix lies in memory.
  enum class Plain { out_by_in, in_by_out };  // B[n][k], B[k][n]

  // Whether a row's bits may depend on more than the row; only those of a forward pass may not.
  enum class Bits { any, of_the_row_alone };

  // Columns [begin, begin + columns) of C.
  struct Block {
    std::int64_t begin;
    std::int64_t columns;
  };

  RowLadder(std::int64_t in, std::int64_t out, DataType type, Plain plain, Bits bits);

  // The most rows of a run() that touches no more than `row_limit` of them: as many, or fewer where rungs
  // disagree, perhaps none; some for half of kTileRows and more, and for one.
  std::int64_t max_rows(std::int64_t row_limit = kTileRows) const;
  std::int64_t blocks() const { return blocks_; }
  Block block(std::int64_t index) const;
  std::int64_t widest_block() const { return widths_.front().columns; }
  std::int64_t packed_bytes() const { return packed_bytes_; }
  // Of runs that touch no more than `row_limit` rows.
  std::int64_t scratch_bytes(std::int64_t row_limit = kTileRows) const;

  void pack(const void* plain, std::byte* packed) const;
  // The columns of one block, in rows of that block's width. `a` and `c` (f32) must have space for as many
  // rows as max_rows() was asked about: rows above m are read and written, and mean nothing. A row alone is
  // multiplied in `scratch`, where it has to be among others.
  void run(std::int64_t block, std::int64_t m, const void* a, const std::byte* packed, float* c,
           std::byte* scratch) const;

  bool bitwise() const { return bitwise_; }
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Rung {
    std::int64_t rows;
    Product product;
  };
  // The ladder of the blocks of one width.
  struct Width {
    std::int64_t columns;
    dnnl::memory::desc plain, packed;
    std::vector<Rung> rungs;  // ascending

    std::int64_t packed_bytes() const;
    const Rung& rung_for(std::int64_t m) const;
  };
  struct Sample;

  Width make_width(std::int64_t columns) const;
  Rung make_rung(const Width& width, std::int64_t rows) const;
  bool widens() const { return product_type(type_) != type_; }
  // Of the rows of a run, where they are widened.
  std::int64_t widened_bytes(std::int64_t rows) const;
  dnnl::memory::desc weights_of(std::int64_t columns) const;
  void pack_block(const Width& width, const std::byte* plain, std::byte* packed) const;
  void widen_block(const Width& width, const bf16* plain, float* packed) const;
  std::int64_t scratch_bytes(const Rung& rung) const;
  // Of a row of `a` and one of `c`, as many as the rung has.
  std::int64_t copied_bytes(const Rung& rung) const;
  std::int64_t result_bytes(const Width& width, const Rung& rung) const;
  void run_alone(const Width& width, const Rung& rung, const void* a, const std::byte* packed, float* c,
                 std::byte* scratch) const;
  void run_rung(const Rung& rung, const void* a, const std::byte* packed, float* c, std::byte* scratch) const;
  const Width& width_of(std::int64_t block) const;
  void keep_agreeing_rungs(Width& width);
  std::vector<std::size_t> agreeing(const Width& width, const Rung& reference, Sample& sample) const;

  std::int64_t in_;
  std::int64_t out_;
  DataType type_;
  Plain plain_;
  std::int64_t blocks_;
  std::vector<Width> widths_;  // of all blocks but the last; of the last, where it is narrower
  std::int64_t packed_bytes_ = 0;
  bool bitwise_ = false;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace evenkeel::internal
