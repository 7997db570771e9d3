// Named arrays in a file, whatever its format: safetensors, npz, or npy (one array, named ""). The format is
// known by content, never by name. Elements are read by range; nothing is read before it is asked for, and no
// length in the file is believed before the bytes are there.
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
  // Puts the bytes from `first_byte` of the array on into `out`.
  using Fetch = std::function<void(std::int64_t first_byte, std::span<std::byte> out)>;

  ArrayReader(std::string file, ArrayInfo info, Fetch fetch)
      : info_(std::move(info)), file_(std::move(file)), fetch_(std::move(fetch)) {}

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
  // An array of the file, and what makes a reader's way to its bytes.
  struct Stored {
    ArrayInfo info;
    std::function<ArrayReader::Fetch()> open;
  };
  ArrayFile(std::string name, FileFormat format, std::int64_t max_whole_bytes, std::vector<Stored> arrays,
            std::map<std::string, std::string> metadata = {});

  const std::string& name() const { return name_; }
  FileFormat format() const { return format_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }
  // What safetensors call so; the texts of an npz.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr where there is none.
  const ArrayInfo* find(std::string_view array) const;
  // Throws ParseError where there is none, listing those there are.
  const ArrayInfo& at(std::string_view array) const;
  // The file may go before the reader does, or the way to the array's bytes.
  std::unique_ptr<ArrayReader> reader(std::string_view array) const;
  ArrayReader::Fetch fetch(std::string_view array) const;

  // The most bytes that an array may have to be held in memory whole. In an uncompressed file that is the
  // file's own size. In a compressed one it is 1 MiB + 64 times the file's size, so that a small file cannot
  // ask for a big buffer.
  std::int64_t max_whole_bytes() const { return max_whole_bytes_; }

 private:
  std::string name_;
  FileFormat format_;
  std::int64_t max_whole_bytes_;
  std::vector<ArrayInfo> arrays_;
  std::vector<std::function<ArrayReader::Fetch()>> open_;    // of each of arrays_
  std::map<std::string, std::size_t, std::less<>> by_name_;  // places in arrays_
  std::map<std::string, std::string> metadata_;
};

// Throws ParseError: the file cannot be opened, is damaged, or is of another kind (JSON, or unknown).
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

// Throw ParseError if there is no such array, or it is not of the kind.
FloatArray read_floats(const ArrayFile& file, std::string_view array);
DoubleArray read_doubles(const ArrayFile& file, std::string_view array);
IntArray read_integers(const ArrayFile& file, std::string_view array);
// Of any type whose elements are whole numbers.
IntArray read_whole_numbers(const ArrayFile& file, std::string_view array);

// The array of a file that holds counts: `counts`, or its only one. Throws ParseError.
std::string name_of_counts(const ArrayFile& file);

}  // namespace evenkeel
