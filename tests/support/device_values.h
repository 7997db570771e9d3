// Values in a GPU's arena, written and read through a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/device/arena.h"
#include "evenkeel/device/device_stream.h"

namespace evenkeel::testing {

template <class T>
class DeviceValues {
 public:
  DeviceValues(Arena& arena, DeviceStream& stream, std::size_t count)
      : buffer_(arena.allocate_for<T>(static_cast<std::int64_t>(count), "a test's values")),
        stream_(stream) {}
  DeviceValues(Arena& arena, DeviceStream& stream, const std::vector<T>& values)
      : DeviceValues(arena, stream, values.size()) {
    write(values);
  }

  // Both wait for the copy, since the host's memory may be freed next.
  void write(const std::vector<T>& values) {
    stream_.copy(buffer_.data(), values.data(), values.size() * sizeof(T));
    stream_.synchronize();
  }
  std::vector<T> read() const {
    stream_.flush();
    std::vector<T> values(span().size());
    stream_.copy(values.data(), buffer_.data(), values.size() * sizeof(T));
    stream_.synchronize();
    return values;
  }
  std::span<T> span() const { return buffer_.as<T>(); }
  std::span<const std::byte> bytes() const { return buffer_.bytes(); }
  std::span<std::byte> writable_bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  DeviceStream& stream_;
};

}  // namespace evenkeel::testing
