// Reads files of torch.save: a zip archive with a pickle and the tensors' bytes (docs/formats.md#pt).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/pickle.h"
#include "evenkeel/io/internal/zip_archive.h"

namespace evenkeel::internal {

// Whether a zip archive was written by torch.save. Throws ParseError if the archive is damaged.
bool is_torch_file(const ByteSource& source);

class TorchFile {
 public:
  using Id = Pickle::Id;

  // Throws ParseError if the file is not one of torch.save, has compressed members or another byte order, or
  // its pickle is not plain data.
  explicit TorchFile(const ByteSource& source);

  const std::string& name() const { return archive_->name(); }
  const Pickle& pickle() const { return *pickle_; }
  bool is_tensor(Id id) const { return pickle_->kind(id) == Pickle::Kind::call; }

  // Reads a tensor of whole numbers, of any type and strides; messages call it `key`. The total size of all
  // reads is limited to a small multiple of the file's size, since tensors can overlap and be read twice.
  IntArray integers(Id tensor, const std::string& key);
  // The same for a tensor of any numbers.
  DoubleArray doubles(Id tensor, const std::string& key);
  // Whether a tensor has a floating type.
  bool is_floating(Id tensor) const;

 private:
  struct Tensor;
  template <class Number>
  WholeArray<Number> read(Id tensor, const std::string& key);
  std::vector<std::byte> stored_bytes(Tensor& tensor, const std::string& key);
  void require_version() const;
  Tensor storage_of(Id persistent, const std::string& key) const;
  Tensor describe(Id tensor, const std::string& key) const;
  std::vector<std::int64_t> sizes(Id tuple, const std::string& key) const;
  const ZipArchive::Member& member(const std::string& name) const;
  std::string text_of(const std::string& name) const;
  void charge(std::int64_t elements, const std::string& key);

  std::shared_ptr<const ZipArchive> archive_;
  std::string prefix_;  // "recording/" before "data.pkl"
  std::unique_ptr<Pickle> pickle_;
  std::int64_t budget_;  // elements that may still be read
};

}  // namespace evenkeel::internal
