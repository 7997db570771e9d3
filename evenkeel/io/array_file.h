// Named arrays in a file, whatever its format: safetensors, npz, or npy (one array, named ""). The format is
// known by content, never by name. Elements are read by range; nothing is read before it is asked for, and no
// length in the file is believed before the bytes are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/dtype.h"

namespace evenkeel {

enum class FileFormat { safetensors, npy, npz, json };

// Throws ParseError if the content is none of the four.
FileFormat detect_format(const ByteSource& source);
std::string_view name_of(FileFormat format);

struct ArrayInfo {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::int64_t num_elements = 1;
};

// One array; row-major. In a compressed member a range before the last one read starts over at its beginning.
class ArrayReader {
 public:
  virtual ~ArrayReader() = default;
  const ArrayInfo& info() const { return info_; }
  const std::string& file() const { return file_; }  // its name

  // Elements [first, first + out.size()). Throws ParseError if the file ends before, or the type is floating.
  void read(std::int64_t first, std::span<std::int64_t> out);
  // The same as float or double, of any type.
  void read(std::int64_t first, std::span<float> out);
  void read(std::int64_t first, std::span<double> out);
  // The same as int64, of any type whose elements are whole numbers. Throws ParseError at the first that is
  // not.
  void read_whole(std::int64_t first, std::span<std::int64_t> out);

 protected:
  ArrayReader(std::string file, ArrayInfo info) : info_(std::move(info)), file_(std::move(file)) {}

 private:
  virtual void fetch(std::int64_t first_byte, std::span<std::byte> out) = 0;
  void require_inside(std::int64_t first, std::size_t count) const;
  void fetch_block(std::int64_t first, std::size_t count);

  ArrayInfo info_;
  std::string file_;
  std::vector<std::byte> block_;
};

class ArrayFile {
 public:
  virtual ~ArrayFile() = default;

  const std::string& name() const { return name_; }
  FileFormat format() const { return format_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr where there is none.
  const ArrayInfo* find(std::string_view array) const;
  // Throws ParseError where there is none, listing those there are.
  const ArrayInfo& at(std::string_view array) const;
  // The file may go before the reader does.
  std::unique_ptr<ArrayReader> reader(std::string_view array) const;

  // The most bytes that an array may have to be held in memory whole. In an uncompressed file that is the
  // file's own size. In a compressed one it is 1 MiB + 64 times the file's size, so that a small file cannot
  // ask for a big buffer.
  virtual std::int64_t max_whole_bytes() const = 0;

 protected:
  ArrayFile(std::string name, FileFormat format) : name_(std::move(name)), format_(format) {}
  virtual std::unique_ptr<ArrayReader> open(const ArrayInfo& array) const = 0;

  std::vector<ArrayInfo> arrays_;  // complete before the first find()
  std::map<std::string, std::string> metadata_;

 private:
  std::string name_;
  FileFormat format_;
  mutable std::once_flag indexed_;
  mutable std::vector<std::uint32_t> by_name_;  // places in arrays_
};

// Throws ParseError: the file cannot be opened, is damaged, or is of another kind (JSON, or unknown).
std::unique_ptr<ArrayFile> open_array_file(const std::string& path);
std::unique_ptr<ArrayFile> open_array_file(std::shared_ptr<const ByteSource> source);

// An array read whole, as float, double or int64.
struct FloatArray {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
struct DoubleArray {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
struct IntArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
};
// Throw ParseError if there is no such array, or it is not of the kind.
FloatArray read_floats(const ArrayFile& file, std::string_view array);
DoubleArray read_doubles(const ArrayFile& file, std::string_view array);
IntArray read_integers(const ArrayFile& file, std::string_view array);
// Of any type whose elements are whole numbers.
IntArray read_whole_numbers(const ArrayFile& file, std::string_view array);

// The array of a file that holds counts: `counts`, or its only one. Throws ParseError.
std::string name_of_counts(const ArrayFile& file);

}  // namespace evenkeel
