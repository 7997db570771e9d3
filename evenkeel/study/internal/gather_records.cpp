#include "evenkeel/study/internal/gather_records.h"

#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/comm/gather.h"

namespace evenkeel::internal {

namespace {

// Serializes a record. Each list is preceded by its length. The name of a buffer is written as a list of
// letters.
class Writer {
 public:
  template <class Value>
  void put(std::span<const Value> values) {
    const std::size_t count = values.size();
    append(std::as_bytes(std::span(&count, 1)));
    append(std::as_bytes(values));
  }
  std::vector<std::byte> bytes;

 private:
  void append(std::span<const std::byte> added) {
    const std::size_t at = bytes.size();
    bytes.resize(at + added.size());
    if (!added.empty()) std::memcpy(bytes.data() + at, added.data(), added.size());
  }
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Value>
  void take(std::vector<Value>& values) {
    std::size_t count = 0;
    copy(&count, sizeof(count));
    values.resize(count);
    copy(values.data(), count * sizeof(Value));
  }

 private:
  void copy(void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

const char* lasting(std::string name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(std::move(name)).first->c_str();
}

std::vector<std::byte> bytes_of(const StepRecord& record) {
  Writer out;
  out.put(std::span(record.phases));
  out.put(std::span(record.in_use));
  out.put(std::span(record.seconds));
  out.put(std::span(record.buffers));
  for (const StepRecord::Lent& buffer : record.buffers)
    out.put(std::span(std::string_view(buffer.loan.name)));
  return out.bytes;
}

StepRecord record_of(std::span<const std::byte> bytes) {
  Reader in(bytes);
  StepRecord record;
  in.take(record.phases);
  in.take(record.in_use);
  in.take(record.seconds);
  in.take(record.buffers);
  std::vector<char> name;
  for (StepRecord::Lent& buffer : record.buffers) {
    in.take(name);
    buffer.loan.name = lasting({name.begin(), name.end()});
  }
  return record;
}

}  // namespace

std::vector<StepRecord> gather_records(Communicator& comm, const StepRecord& mine) {
  const std::vector<std::byte> bytes = bytes_of(mine);
  std::vector<std::vector<std::byte>> all;
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  for (std::size_t size : gather(comm, bytes.size(), "timelines")) all.emplace_back(size);
  for (RankId rank : indices<RankId>(comm.size())) {
    sends.push_back({rank, bytes});
    receives.push_back({rank, all[rank.offset()]});
  }
  CpuStream stream;
  comm.send_receive(sends, receives, stream, "timelines").wait();
  std::vector<StepRecord> records;
  for (const std::vector<std::byte>& each : all) records.push_back(record_of(each));
  return records;
}

}  // namespace evenkeel::internal
