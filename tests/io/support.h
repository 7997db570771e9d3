// Helpers for tests of readers: files, bytes and expected errors.
#pragma once

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/routing/trace.h"
#include "tests/routing/message.h"

namespace evenkeel {

// A temporary folder per test, deleted afterwards.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

struct InFolder : testing::Test {
  TempFolder folder;
};

// The path of a file in tests/io/data, and that of any file in the repository.
std::string test_data(std::string_view name);
std::string repository_file(std::string_view name);

std::string read_text(const std::string& path);
void write_text(const std::string& path, std::string_view text);

std::vector<std::byte> bytes_of(std::string_view text);
// An in-memory file named "f".
ByteSource source_of(std::string_view text);

inline RoutingProfile profile_in(const ByteSource& source, const ReadOptions& options = {}) {
  return read_recording(source, options).profile;
}

// Drops the layer numbers that the source gave, so that only counts are compared.
inline RoutingProfile without_numbers(RoutingProfile profile) {
  profile.set_layers({});
  return profile;
}

// An input that a reader refuses, with the expected message: the whole text, or a matcher such as HasSubstr.
struct Refused {
  std::string input;
  testing::Matcher<std::string> message;
  ReadOptions options = {};  // used by expect_no_recording()
};

template <class Expected = ParseError, class Read>
void expect_refused(Read read, const std::vector<Refused>& all) {
  for (const Refused& each : all)
    EXPECT_THAT(message_of<Expected>([&] { read(each.input); }), each.message) << each.input;
}

template <class Expected = ParseError>
std::string recording_refusal(const ByteSource& source, const ReadOptions& options = {}) {
  return message_of<Expected>([&] { read_recording(source, options); });
}

// Like expect_refused(): reads each text, in memory, as a recording.
template <class Expected = ParseError>
void expect_no_recording(const std::vector<Refused>& all) {
  for (const auto& [text, message, options] : all)
    EXPECT_THAT(recording_refusal<Expected>(source_of(text), options), message) << text;
}

// Writes one int64 array to a file of the folder, in the format of the file's extension. Returns the path.
std::string array_file(const TempFolder& folder, const std::string& file, const std::string& array,
                       std::vector<std::int64_t> shape, const std::vector<std::int64_t>& values);
// All ids of a trace, [tokens, layers, k].
std::vector<std::int32_t> ids_of(TraceReader& trace);

// CPU seconds that `work` takes.
template <class Work>
double cpu_seconds(Work work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Sixteen times the work may take at most 80 times as long; quadratic work would take 256 times as long.
template <class Work>
void expect_linear(Work work_of, int count) {
  const double once = cpu_seconds([&] { work_of(count); });
  EXPECT_LT(cpu_seconds([&] { work_of(16 * count); }), 80 * once + 0.2);
}

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};
// A safetensors file with these tensors in this order.
std::string safetensors_of(std::span<const FileTensor> tensors,
                           const std::map<std::string, std::string>& metadata = {});
// A safetensors file: the header's length, the header, then the data.
std::string safetensors_text(std::string_view header, std::string_view data = "");
// An npy file of version 1: its header with this dictionary, then the data.
std::string npy_text(std::string_view dictionary, std::string_view data = "");

}  // namespace evenkeel
