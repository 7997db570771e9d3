// The array formats behind ArrayFile, one function each; and the plain array reader two of them share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "evenkeel/io/array_file.h"

namespace evenkeel::internal {

std::unique_ptr<ArrayFile> open_safetensors(std::shared_ptr<const ByteSource> source);
std::unique_ptr<ArrayFile> open_npy(std::shared_ptr<const ByteSource> source);
std::unique_ptr<ArrayFile> open_npz(std::shared_ptr<const ByteSource> source);

// An array whose bytes lie at one place of the file.
class PlainArrayReader final : public ArrayReader {
 public:
  PlainArrayReader(std::shared_ptr<const ByteSource> source, ArrayInfo info, std::int64_t data_begin)
      : ArrayReader(source->name(), std::move(info)), source_(std::move(source)), data_begin_(data_begin) {}

 private:
  void fetch(std::int64_t first_byte, std::span<std::byte> out) override {
    source_->read(data_begin_ + first_byte, out);
  }

  std::shared_ptr<const ByteSource> source_;
  std::int64_t data_begin_;
};

// The beginning of an npy array, whether it is a file or a member of an npz.
struct NpyHeader {
  ArrayInfo array;
  std::int64_t data_begin = 0;
};
using ReadBytes = std::function<void(std::int64_t offset, std::span<std::byte> out)>;
// `size` is that of the whole npy. Throws ParseError; `where` begins its places ("topk_ids.npy", or nothing).
NpyHeader read_npy_header(const ReadBytes& read, std::int64_t size, const std::string& file,
                          const std::string& where);
// The header of an npy file, which is written before the elements.
std::string npy_header_text(Dtype type, std::span<const std::int64_t> shape);

}  // namespace evenkeel::internal
