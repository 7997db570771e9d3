// A file that appears whole or not at all: written beside its place and renamed when done. A link stays, and
// what it leads to is replaced; a file that is replaced leaves its mode to the new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/io/unfinished.h"

namespace evenkeel {

// Throws InvalidArgument if no file can be made at `path`: for whoever would learn it only after long work.
void require_writable(const std::string& path);

class AtomicFile {
 public:
  // Throws InvalidArgument if no file can be made there, or something is there that is no ordinary file.
  // Without commit() nothing is left behind, and what was at the path stays.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throw InvalidArgument if the bytes cannot be written, as when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Where the next byte goes, counted from the file's begin.
  std::int64_t position() const;
  void seek(std::int64_t position);
  // Gives the finished file its name.
  void commit();

 private:
  struct Resolved {};
  AtomicFile(const std::string& place, Resolved);
  [[noreturn]] void refuse(int error) const;

  std::optional<unsigned> replaced_mode_;
  Unfinished unfinished_;
  std::FILE* file_ = nullptr;
};

// A whole file of this text.
void write_file(const std::string& path, std::string_view text);

}  // namespace evenkeel
