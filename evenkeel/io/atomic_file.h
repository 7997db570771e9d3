// A file that appears whole or not at all: written beside its place and renamed when done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

class AtomicFile {
 public:
  // Throws InvalidArgument if nothing can be written there.
  explicit AtomicFile(std::string path);
  // Without commit() nothing is left behind, and what was at `path` stays.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Brings the bytes to the disk and gives the file its name. Throws InvalidArgument if the disk is full.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string beside_;
  std::FILE* file_ = nullptr;
};

}  // namespace evenkeel
