// Rows times one weight matrix, C[m, N] = A[m, K] B, for any m up to max_rows(), at the speed of a primitive
// made for m and with bits that do not depend on m.
//
// Problem    A oneDNN primitive serves one row count and takes 0.1-1 ms to make, longer than many products
//            take. Primitives of different m may round differently. A complete C in f32 leaves the cache
//            before it is used.
// Method     Primitives for a ladder of row counts (rungs), made once. m rows run on the next larger rung,
//            with padding rows whose results are discarded. B's columns are cut into blocks of one width; the
//            last may be narrower. Each block is one product, and each width has its own ladder. A self-test
//            multiplies the same rows on every rung, at another position than on a reference rung, and keeps
//            the rungs that agree bit by bit. If bf16 is widened, weights are widened when they are packed,
//            and rows before each product.
// Guarantee  With Bits::of_the_row_alone, and if bitwise() holds, a row of C depends only on that row of A
//            and on B.
// Cost       The padding is at most 1 row if m <= 128 (3 rows for bf16 with AMX), 3 rows if m <= 256, and 7
//            rows above that; more if rungs were dropped. The self-test runs each rung once per width and
//            reference, on one block. If most rungs agree with the first reference, no other one is tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/compute/cpu/internal/dnnl.h"

namespace evenkeel::internal {

class RowLadder {
 public:
  // The most columns of a block.
  static constexpr std::int64_t kWidestBlock = 384;

  // The memory layout of the plain weight matrix.
  enum class Plain { out_by_in, in_by_out };  // B[n][k], B[k][n]

  // Whether a row's bits may depend on other rows. Only forward passes need of_the_row_alone.
  enum class Bits { any, of_the_row_alone };

  // Columns [begin, begin + columns) of C.
  struct Block {
    std::int64_t begin;
    std::int64_t columns;
  };

  RowLadder(std::int64_t in, std::int64_t out, DataType type, Plain plain, Bits bits);

  // The most rows of a run() that touches at most `row_limit` rows: row_limit, or fewer (even 0) if rungs
  // were dropped. The result is above 0 if the limit is 1, or kTileRows / 2 or more.
  std::int64_t max_rows(std::int64_t row_limit = kTileRows) const;
  std::int64_t blocks() const { return blocks_; }
  Block block(std::int64_t index) const;
  std::int64_t widest_block() const { return widths_.front().columns; }
  std::int64_t packed_bytes() const { return packed_bytes_; }
  // Scratch for runs that touch at most `row_limit` rows.
  std::int64_t scratch_bytes(std::int64_t row_limit = kTileRows) const;

  void pack(const void* plain, std::byte* packed) const;
  // Computes the columns of one block, in rows of that block's width. `a` and `c` (f32) must have space for
  // as many rows as the row_limit passed to max_rows(): the rows after the first m are read and written too,
  // but their content is meaningless. If a single row needs a larger rung, it is multiplied in `scratch`.
  void run(std::int64_t block, std::int64_t m, const void* a, const std::byte* packed, float* c,
           std::byte* scratch) const;

  bool bitwise() const { return bitwise_; }
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Rung {
    std::int64_t rows;
    Product product;
  };
  // The ladder for blocks of one width.
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
  // Bytes of `rows` widened rows; 0 if the type is not widened.
  std::int64_t widened_bytes(std::int64_t rows) const;
  dnnl::memory::desc weights_of(std::int64_t columns) const;
  void pack_block(const Width& width, const std::byte* plain, std::byte* packed) const;
  void widen_block(const Width& width, const bf16* plain, float* packed) const;
  std::int64_t scratch_bytes(const Rung& rung) const;
  // Bytes of the rung's rows of `a` and of `c`, used for a single row.
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
  std::vector<Width> widths_;  // one for all blocks but the last; then one for the last, if narrower
  std::int64_t packed_bytes_ = 0;
  bool bitwise_ = false;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace evenkeel::internal
