#include "tests/comm/transport.h"

#include <mpi.h>

#include <algorithm>
#include <exception>
#include <map>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/mpi/mpi_ranks.h"

namespace evenkeel {

namespace {

int started_ranks() {
  run_mpi_ranks([](Communicator&) {});  // starts MPI
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

// A communicator of the first `ranks` ranks of the job; null on all others.
MPI_Comm first_ranks(int ranks) {
  static std::map<int, MPI_Comm> made;
  const auto found = made.find(ranks);
  if (found != made.end()) return found->second;
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm first = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me < ranks ? 0 : MPI_UNDEFINED, me, &first);
  return made.emplace(ranks, first).first->second;
}

std::vector<std::string> gather(const std::string& mine, MPI_Comm comm) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  int size = static_cast<int>(mine.size());
  std::vector<int> sizes(static_cast<std::size_t>(ranks)), at(sizes.size());
  MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm);
  for (std::size_t i = 1; i < at.size(); ++i) at[i] = at[i - 1] + sizes[i - 1];
  std::string all(static_cast<std::size_t>(at.back() + sizes.back()), '\0');
  MPI_Allgatherv(mine.data(), size, MPI_CHAR, all.data(), sizes.data(), at.data(), MPI_CHAR, comm);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < at.size(); ++i)
    texts.push_back(all.substr(static_cast<std::size_t>(at[i]), static_cast<std::size_t>(sizes[i])));
  return texts;
}

// The message of an error that a rank threw itself, not in response to another rank's error.
std::string first_of(const std::vector<std::string>& thrown) {
  const auto own =
      std::ranges::find_if(thrown, [](const std::string& text) { return text.starts_with("own "); });
  const std::string& text = own != thrown.end() ? *own : thrown.front();
  return text.empty() ? text : text.substr(text.find(' ') + 1);
}

}  // namespace

int most_ranks() {
  static const int ranks = started_ranks();
  return ranks;
}

void run_on(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds) {
  NEEDS_RANKS(ranks);
  const MPI_Comm comm = first_ranks(ranks);
  if (comm == MPI_COMM_NULL) return;
  const int handle = MPI_Comm_c2f(comm);
  run_mpi_ranks(body, {.deadline_seconds = deadline_seconds, .communicator = &handle});
}

RankNotes run_and_collect_notes(int ranks, double deadline_seconds,
                                const std::function<void(Communicator&, std::string& note)>& body) {
  std::string note, thrown;
  try {
    run_on(
        ranks, [&](Communicator& comm) { body(comm, note); }, deadline_seconds);
  } catch (const CommError& error) {
    thrown = std::string("reaction ") + error.what();
  } catch (const std::exception& error) {
    thrown = std::string("own ") + error.what();
  }
  // Gathered over all ranks of the job, because ranks beyond the first `ranks` check the notes too.
  RankNotes result{gather(note, MPI_COMM_WORLD), first_of(gather(thrown, MPI_COMM_WORLD))};
  result.notes.resize(static_cast<std::size_t>(ranks));
  return result;
}

}  // namespace evenkeel
