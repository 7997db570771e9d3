// A file that appears whole or not at all: written beside its place and renamed when done. A link stays, and
// what it leads to is replaced.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

// Throws InvalidArgument if no file can be made at `path`: for whoever would learn it only after long work.
void require_writable(const std::string& path);

// A name beside a file that is to be written, for whoever writes it.
class AtomicPath {
 public:
  // Throws InvalidArgument if no file can be made there, or something is there that is no ordinary file.
  explicit AtomicPath(const std::string& path);
  // Without commit() nothing is left behind, and what was at path() stays.
  ~AtomicPath();
  AtomicPath(const AtomicPath&) = delete;
  AtomicPath& operator=(const AtomicPath&) = delete;

  const std::string& path() const { return path_; }
  const std::string& beside() const { return beside_; }
  // Gives the finished file its name.
  void commit();

 private:
  std::string path_;
  std::string beside_;
  bool committed_ = false;
};

// The same for one that is written from front to back.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throw InvalidArgument if the bytes cannot be written, as when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  AtomicPath place_;
  std::FILE* file_ = nullptr;
};

}  // namespace evenkeel
