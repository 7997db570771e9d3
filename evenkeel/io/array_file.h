// Named arrays in a file of any format: safetensors, npz, or npy (one array, named ""). The format is
// detected from the content, never from the name. Elements are read by range and only on request. Lengths in
// the file are checked against its real size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/dtype.h"

namespace evenkeel {

enum class FileFormat { safetensors, npy, npz, json };

// Throws ParseError if the content has none of these formats.
FileFormat detect_format(const ByteSource& source);
std::string_view name_of(FileFormat format);

struct ArrayInfo {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::int64_t num_elements = 1;
};

// Reads one array, row-major. Reading backwards in a compressed member restarts the decompression.
class ArrayReader {
 public:
  // Fills `out` with the array's bytes from `first_byte` on.
  using Fetch = std::function<void(std::int64_t first_byte, std::span<std::byte> out)>;

  ArrayReader(std::string file, ArrayInfo info, Fetch fetch)
      : info_(std::move(info)), file_(std::move(file)), fetch_(std::move(fetch)) {}

  const ArrayInfo& info() const { return info_; }
  const std::string& file() const { return file_; }  // its name

  // Elements [first, first + out.size()). Throws ParseError if the file is too short or the type is floating.
  void read(std::int64_t first, std::span<std::int64_t> out);
  // The same elements as float or double; they may have any type in the file.
  void read(std::int64_t first, std::span<float> out);
  void read(std::int64_t first, std::span<double> out);
  // The same elements as int64; they may have any type in the file. Throws ParseError at the first element
  // that is not a whole number.
  void read_whole(std::int64_t first, std::span<std::int64_t> out);

 private:
  template <class Out, class Convert>
  void read_blocks(std::int64_t first, std::span<Out> out, const Convert& convert);

  ArrayInfo info_;
  std::string file_;
  Fetch fetch_;
  std::vector<std::byte> block_;
};

class ArrayFile {
 public:
  // An array of the file, and a function that opens access to its bytes.
  struct Stored {
    ArrayInfo info;
    std::function<ArrayReader::Fetch()> open;
  };
  ArrayFile(std::string name, FileFormat format, std::int64_t max_whole_bytes, std::vector<Stored> arrays,
            std::map<std::string, std::string> metadata = {});

  const std::string& name() const { return name_; }
  FileFormat format() const { return format_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }
  // The metadata of safetensors, or the text arrays of an npz.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr if there is no such array.
  const ArrayInfo* find(std::string_view array) const;
  // Throws ParseError if there is no such array, listing the existing ones.
  const ArrayInfo& at(std::string_view array) const;
  // The returned object stays valid after this ArrayFile is destroyed.
  std::unique_ptr<ArrayReader> reader(std::string_view array) const;
  ArrayReader::Fetch fetch(std::string_view array) const;

  // The largest array, in bytes, that may be read whole into memory. In an uncompressed file this is the
  // file's size. In a compressed file it is 1 MiB + 64 times the file's size, so that a small file cannot ask
  // for a big buffer.
  std::int64_t max_whole_bytes() const { return max_whole_bytes_; }

 private:
  std::string name_;
  FileFormat format_;
  std::int64_t max_whole_bytes_;
  std::vector<ArrayInfo> arrays_;
  std::vector<std::function<ArrayReader::Fetch()>> open_;    // parallel to arrays_
  std::map<std::string, std::size_t, std::less<>> by_name_;  // indices into arrays_
  std::map<std::string, std::string> metadata_;
};

// Throws ParseError if the file cannot be opened, is damaged, or has another format (JSON, or unknown).
std::unique_ptr<ArrayFile> open_array_file(const ByteSource& source);

// An array read whole.
template <class Number>
struct WholeArray {
  std::vector<std::int64_t> shape;
  std::vector<Number> values;
};
using FloatArray = WholeArray<float>;
using DoubleArray = WholeArray<double>;
using IntArray = WholeArray<std::int64_t>;

// These throw ParseError if there is no such array, or its type does not fit.
FloatArray read_floats(const ArrayFile& file, std::string_view array);
DoubleArray read_doubles(const ArrayFile& file, std::string_view array);
IntArray read_integers(const ArrayFile& file, std::string_view array);
// Any type is allowed if all elements are whole numbers.
IntArray read_whole_numbers(const ArrayFile& file, std::string_view array);

// The name of the array with counts: `counts`, or the file's only array. Throws ParseError for other files.
std::string name_of_counts(const ArrayFile& file);

}  // namespace evenkeel
