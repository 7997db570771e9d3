#include "evenkeel/comm/recording.h"

#include <algorithm>
#include <vector>

#include "evenkeel/base/clock.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {

namespace {

// Measures the time that a stream spends between start() and stop().
class Stopwatch {
 public:
  bool idle() const { return !start_.queued && !stop_.queued; }
  void start(CpuStream& stream) { start_.post(stream); }
  // Adds the time to a record.
  Event stop(CpuStream& stream, std::vector<OperationRecord>& records, std::size_t record) {
    records_ = &records;
    record_ = record;
    return stop_.post(stream);
  }

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
    wall_ = wall_seconds();
    cpu_ = thread_cpu_seconds();
  }
  void stopped() {
    OperationRecord& record = (*records_)[record_];
    record.wall_seconds += wall_seconds() - wall_;
    record.cpu_seconds += thread_cpu_seconds() - cpu_;
  }

  std::vector<OperationRecord>* records_ = nullptr;
  std::size_t record_ = 0;
  double wall_ = 0;
  double cpu_ = 0;
  Edge start_{*this, &Stopwatch::started};
  Edge stop_{*this, &Stopwatch::stopped};
};

}  // namespace

class RecordingCommunicator::Recorder {
 public:
  std::vector<OperationRecord>& records() { return records_; }

  // Begins the next operation; it is timed if its stream is a CpuStream.
  void begin(const char* name, Stream& stream) {
    const auto found = std::ranges::find(records_, name, &OperationRecord::name);
    current_ = static_cast<std::size_t>(found - records_.begin());
    if (found == records_.end()) records_.emplace_back().name = name;
    auto* cpu = dynamic_cast<CpuStream*>(&stream);
    watch_ = cpu == nullptr ? nullptr : &idle_watch();
    if (cpu != nullptr) watch_->start(*cpu);
  }
  Event end(Event posted, const MessageTraffic& traffic, Stream& stream) {
    records_[current_] += traffic;
    records_[current_].calls += 1;
    return watch_ == nullptr ? posted : watch_->stop(static_cast<CpuStream&>(stream), records_, current_);
  }

 private:
  Stopwatch& idle_watch() {
    for (const auto& watch : watches_)
      if (watch->idle()) return *watch;
    return *watches_.emplace_back(std::make_unique<Stopwatch>());
  }

  std::vector<OperationRecord> records_;
  std::vector<std::unique_ptr<Stopwatch>> watches_;  // as many as were ever in use at once
  std::size_t current_ = 0;                          // valid between begin() and end()
  Stopwatch* watch_ = nullptr;
};

RecordingCommunicator::RecordingCommunicator(Communicator& inner, std::vector<int> node_of_rank)
    : ForwardingCommunicator(inner), recorder_(std::make_shared<Recorder>()) {
  set_nodes(std::move(node_of_rank));
}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> owned,
                                             std::shared_ptr<Recorder> recorder)
    : ForwardingCommunicator(std::move(owned)), recorder_(std::move(recorder)) {}

RecordingCommunicator::~RecordingCommunicator() = default;

std::span<const OperationRecord> RecordingCommunicator::records() const {
  return recorder_->records();
}

OperationRecord RecordingCommunicator::record(std::string_view name) const {
  const auto found = std::ranges::find(records(), name, &OperationRecord::name);
  if (found != records().end()) return *found;
  OperationRecord nothing;
  nothing.name = name;
  return nothing;
}

OperationRecord RecordingCommunicator::total() const {
  OperationRecord total;
  total.name = "total";
  for (const OperationRecord& record : records()) {
    total += record;
    total.calls += record.calls;
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

void RecordingCommunicator::begin(const char* name, Stream& stream) {
  recorder_->begin(name, stream);
}

Event RecordingCommunicator::end(Event posted, const MessageTraffic& traffic, Stream& stream) {
  return recorder_->end(posted, traffic, stream);
}

std::unique_ptr<Communicator> RecordingCommunicator::split(int color) {
  auto part =
      std::unique_ptr<RecordingCommunicator>(new RecordingCommunicator(inner().split(color), recorder_));
  if (nodes().empty()) return part;
  part->set_nodes(gather(part->inner(), nodes()[rank().offset()], "nodes"));
  return part;
}

}  // namespace evenkeel
