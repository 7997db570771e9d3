#include "evenkeel/comm/mpi/mpi_ranks.h"

#include <fmt/format.h>
#include <mpi.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/mpi/internal/operation.h"
#include "evenkeel/comm/mpi/internal/root.h"
#include "evenkeel/comm/mpi/internal/session.h"

namespace evenkeel {

namespace internal {

class MpiCommunicator final : public MessageCommunicator<MpiGroup, MpiOperation> {
 public:
  using MessageCommunicator::MessageCommunicator;

  void throw_if_aborted(const char* name) override { root().check(name); }
  void abort(const std::string& cause) noexcept override {
    root().abort_for("aborted", cause);
    root().drain();
  }

 private:
  MpiOperation& begin(const char* name, Channel channel, Stream& stream) override {
    root().check(name);
    auto* const cpu = dynamic_cast<CpuStream*>(&stream);
    if (cpu == nullptr)
      throw InvalidArgument("stream", "is of a kind that MPI ranks do not support", "a CpuStream");
    cpu->reserve();
    MpiOperation& operation = idle_operation();
    operation.begin(name, channel);
    return operation;
  }

  Event post(MpiOperation& operation, Stream& stream) override {
    try {
      operation.publish();
    } catch (const std::exception& error) {  // some messages may be under way already
      root().abort_for("failed", error.what());
      root().drain();
      throw;
    }
    return static_cast<CpuStream&>(stream).post(operation);
  }

  std::int64_t propose_number() override { return root().next_number(); }
  std::unique_ptr<Communicator> join(Part part) override {
    require_tag(part.number);
    root().use_number(part.number);
    for (int& member : part.members) member = group().root_rank(member);
    return std::make_unique<MpiCommunicator>(
        std::make_shared<MpiGroup>(group().root, std::move(part.members), static_cast<int>(part.number)),
        part.me);
  }

  // Each communicator uses two MPI tags.
  void require_tag(std::int64_t number) const {
    constexpr int kLeast = 32767;  // the least that MPI guarantees
    int* most = nullptr;
    int known = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &known);
    if (const int tags = known != 0 ? *most : kLeast; 2 * number + 1 > tags)
      throw Unsupported(fmt::format("this MPI supports at most {} communicators", tags / 2));
  }

  MpiRoot& root() const { return *group().root; }
};

namespace {

void run_body(const std::shared_ptr<MpiRoot>& root, const std::function<void(Communicator&)>& body) {
  std::vector<int> members(static_cast<std::size_t>(root->size()));
  std::iota(members.begin(), members.end(), 0);
  std::optional<MpiCommunicator> comm;
  comm.emplace(std::make_shared<MpiGroup>(root, std::move(members)), root->rank());
  try {
    body(*comm);
    comm.reset();  // cancels operations left in the caller's streams
    root->end();
  } catch (const std::exception& error) {
    root->abort_for("failed", error.what());
    root->drain();
    throw;
  } catch (...) {
    root->abort_for("failed", "with an exception of unknown type");
    root->drain();
    throw;
  }
}

}  // namespace

}  // namespace internal

namespace {

constexpr double kLeastDeadline = 1e-3, kLongestDeadline = 1e8;  // seconds

}  // namespace

void run_mpi_ranks(const std::function<void(Communicator&)>& body, const MpiOptions& options) {
  if (!(options.deadline_seconds >= kLeastDeadline && options.deadline_seconds <= kLongestDeadline))
    throw InvalidArgument("deadline_seconds", fmt::format("is {:g}", options.deadline_seconds),
                          fmt::format("{:g}..{:g}", kLeastDeadline, kLongestDeadline));
  static bool runs = false;
  if (runs)
    throw Unsupported(
        "run_mpi_ranks is already running in this process; split() its communicator for a subset of ranks");
  internal::Session::require();
  const MPI_Comm parent =
      options.communicator == nullptr ? MPI_COMM_WORLD : MPI_Comm_f2c(*options.communicator);
  int between_groups = 0;
  if (parent != MPI_COMM_NULL) MPI_Comm_test_inter(parent, &between_groups);
  if (parent == MPI_COMM_NULL || between_groups != 0)
    throw InvalidArgument("communicator",
                          between_groups != 0 ? "is an inter-communicator" : "is MPI_COMM_NULL",
                          "the handle of an intra-communicator");
  runs = true;
  struct Ended {
    ~Ended() { runs = false; }
  } const ended;
  internal::run_body(std::make_shared<internal::MpiRoot>(parent, options.deadline_seconds), body);
}

}  // namespace evenkeel
