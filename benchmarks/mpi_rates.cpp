// The communicator over MPI beside MPI's own calls: an exchange against MPI_Alltoall and a gather against
// MPI_Allgather, for the same bytes and ranks, in turns. Prints a line for each: the least microseconds of
// both, and their ratio.
//   tools/mpirun.sh -n 2 build/release/bin/mpi_rates
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include "evenkeel/base/clock.h"
#include "evenkeel/comm/mpi/mpi_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace {

using namespace evenkeel;

// The slowest rank's seconds in the fastest of many rounds.
template <class Work>
double round_seconds(const Work& work, double least) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double before = wall_seconds();
  work();
  double mine = wall_seconds() - before, slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return std::min(least, slowest);
}

template <class Ours, class Theirs>
void compare(const Communicator& comm, const char* name, std::size_t bytes, const Ours& ours,
             const Theirs& theirs) {
  double our_seconds = std::numeric_limits<double>::max(), their_seconds = our_seconds;
  for (int round = 0; round < 200; ++round) {
    our_seconds = round_seconds(ours, our_seconds);
    their_seconds = round_seconds(theirs, their_seconds);
  }
  if (comm.rank() == RankId(0))
    std::printf("%-14s %9zu bytes a rank: %8.1f us, MPI's own %8.1f us, %.2f\n", name, bytes,
                1e6 * our_seconds, 1e6 * their_seconds, our_seconds / their_seconds);
}

void measure(Communicator& comm) {
  CpuStream stream;
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const std::size_t bytes :
       {std::size_t{1} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{8} << 20}) {
    std::vector<std::byte> out(ranks * bytes), in(out.size());
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    for (RankId rank : indices<RankId>(ranks)) {
      sends.push_back({rank, std::span(out).subspan(rank.offset() * bytes, bytes)});
      receives.push_back({rank, std::span(in).subspan(rank.offset() * bytes, bytes)});
    }
    const int count = static_cast<int>(bytes);
    compare(
        comm, "send_receive", bytes, [&] { comm.send_receive(sends, receives, stream, "rates").wait(); },
        [&] { MPI_Alltoall(out.data(), count, MPI_BYTE, in.data(), count, MPI_BYTE, MPI_COMM_WORLD); });
  }
  for (const std::size_t experts : {32, 128, 512}) {  // sizes of a step's counts
    const std::vector<std::byte> mine(4 * (experts + 7));
    std::vector<std::byte> all(ranks * mine.size());
    const int count = static_cast<int>(mine.size());
    compare(
        comm, "all_gather", mine.size(), [&] { comm.all_gather(mine, all, stream, "rates").wait(); },
        [&] { MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, MPI_COMM_WORLD); });
  }
}

}  // namespace

int main() {
  evenkeel::run_mpi_ranks(measure);
}
