#include "evenkeel/comm/recording.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {

namespace {

double wall_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Times what a stream does between two points: where it is started and where it is stopped.
class Stopwatch {
 public:
  explicit Stopwatch(std::vector<OperationRecord>& records)
      : records_(records), start_(*this, &Stopwatch::started), stop_(*this, &Stopwatch::stopped) {}

  bool idle() const { return !start_.queued && !stop_.queued; }
  void start(CpuStream& stream, std::size_t record) {
    record_ = record;
    start_.post(stream);
  }
  Event stop(CpuStream& stream) { return stop_.post(stream); }

 private:
  class Edge final : public CpuOperation {
   public:
    Edge(Stopwatch& watch, void (Stopwatch::*reached)()) : watch_(watch), reached_(reached) {}
    Event post(CpuStream& stream) {
      const Event event = stream.post(*this);
      queued = true;
      return event;
    }
    bool queued = false;

   private:
    void carry_out() override {
      queued = false;
      (watch_.*reached_)();
    }
    void cancel() noexcept override { queued = false; }

    Stopwatch& watch_;
    void (Stopwatch::*reached_)();
  };

  void started() {
    wall_ = wall_now();
    cpu_ = cpu_now();
  }
  void stopped() {
    records_[record_].wall_seconds += wall_now() - wall_;
    records_[record_].cpu_seconds += cpu_now() - cpu_;
  }

  std::vector<OperationRecord>& records_;
  std::size_t record_ = 0;
  double wall_ = 0;
  double cpu_ = 0;
  Edge start_;
  Edge stop_;
};

}  // namespace

class RecordingCommunicator::Recorder {
 public:
  std::vector<OperationRecord>& records() { return records_; }

  OperationRecord& named(std::string_view name) {
    const auto found = std::find_if(records_.begin(), records_.end(),
                                    [&](const OperationRecord& record) { return record.name == name; });
    if (found != records_.end()) return *found;
    records_.emplace_back().name = name;
    return records_.back();
  }

  // Calls post(), whose operation counts as `record`, and times it where the stream is the CPU's.
  template <class Post>
  Event timed(OperationRecord& record, Stream& stream, Post post) {
    auto* cpu = dynamic_cast<CpuStream*>(&stream);
    if (cpu == nullptr) return post();
    Stopwatch& watch = idle_watch();
    watch.start(*cpu, static_cast<std::size_t>(&record - records_.data()));
    post();
    return watch.stop(*cpu);
  }

 private:
  Stopwatch& idle_watch() {
    for (const auto& watch : watches_) {
      if (watch->idle()) return *watch;
    }
    return *watches_.emplace_back(std::make_unique<Stopwatch>(records_));
  }

  std::vector<OperationRecord> records_;
  std::vector<std::unique_ptr<Stopwatch>> watches_;  // as many as were ever under way at once
};

RecordingCommunicator::RecordingCommunicator(Communicator& inner)
    : inner_(inner), recorder_(std::make_shared<Recorder>()) {}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> owned,
                                             std::shared_ptr<Recorder> recorder)
    : owned_(std::move(owned)), inner_(*owned_), recorder_(std::move(recorder)) {}

RecordingCommunicator::~RecordingCommunicator() = default;

std::span<const OperationRecord> RecordingCommunicator::records() const {
  return recorder_->records();
}

OperationRecord RecordingCommunicator::record(std::string_view name) const {
  for (const OperationRecord& record : records()) {
    if (record.name == name) return record;
  }
  OperationRecord nothing;
  nothing.name = name;
  return nothing;
}

OperationRecord RecordingCommunicator::total() const {
  OperationRecord total;
  total.name = "total";
  for (const OperationRecord& record : records()) {
    total.calls += record.calls;
    total.messages_sent += record.messages_sent;
    total.messages_received += record.messages_received;
    total.bytes_sent += record.bytes_sent;
    total.bytes_received += record.bytes_received;
    total.wall_seconds += record.wall_seconds;
    total.cpu_seconds += record.cpu_seconds;
  }
  return total;
}

void RecordingCommunicator::reset() {
  for (OperationRecord& record : recorder_->records()) {
    std::string name = std::move(record.name);
    record = OperationRecord();
    record.name = std::move(name);
  }
}

template <class Post>
Event RecordingCommunicator::collective(const char* name, std::size_t bytes_to_each, Stream& stream,
                                        Post post) {
  OperationRecord& record = recorder_->named(name);
  const Event event = recorder_->timed(record, stream, post);
  const std::int64_t others = size() - 1;
  const std::int64_t messages = bytes_to_each == 0 ? 0 : others;
  record.calls += 1;
  record.messages_sent += messages;
  record.messages_received += messages;
  record.bytes_sent += others * static_cast<std::int64_t>(bytes_to_each);
  record.bytes_received += others * static_cast<std::int64_t>(bytes_to_each);
  return event;
}

Event RecordingCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                        Stream& stream, const char* name) {
  return collective(name, mine.size(), stream, [&] { return inner_.all_gather(mine, all, stream, name); });
}

Event RecordingCommunicator::all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                                        const char* name) {
  return collective(name, values.size_bytes(), stream,
                    [&] { return inner_.all_reduce(values, reduction, stream, name); });
}

Event RecordingCommunicator::all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                                        const char* name) {
  return collective(name, values.size_bytes(), stream,
                    [&] { return inner_.all_reduce(values, reduction, stream, name); });
}

Event RecordingCommunicator::barrier(Stream& stream, const char* name) {
  return collective(name, 0, stream, [&] { return inner_.barrier(stream, name); });
}

Event RecordingCommunicator::send_receive(std::span<const SendSlice> sends,
                                          std::span<const ReceiveSlice> receives, Stream& stream,
                                          const char* name) {
  OperationRecord& record = recorder_->named(name);
  const Event event =
      recorder_->timed(record, stream, [&] { return inner_.send_receive(sends, receives, stream, name); });
  const auto count = [&](const auto& slices, std::int64_t& messages, std::int64_t& bytes) {
    for (const auto& slice : slices) {
      if (slice.peer == rank() || slice.bytes.empty()) continue;
      messages += 1;
      bytes += static_cast<std::int64_t>(slice.bytes.size());
    }
  };
  record.calls += 1;
  count(sends, record.messages_sent, record.bytes_sent);
  count(receives, record.messages_received, record.bytes_received);
  return event;
}

std::unique_ptr<Communicator> RecordingCommunicator::split(int color) {
  return std::unique_ptr<Communicator>(new RecordingCommunicator(inner_.split(color), recorder_));
}

}  // namespace evenkeel
