#include "evenkeel/comm/mpi/internal/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "evenkeel/comm/mpi/internal/session.h"

namespace evenkeel::internal {

namespace {

// MPI counts bytes in an int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

}  // namespace

MpiOperation::MpiOperation(MpiGroup& group, int me) : group_(group), root_(*group.root), me_(me) {
  // Operations are reused in turn. Reserving now keeps one that is rarely large from allocating late.
  const std::size_t usual = 64 + 2 * static_cast<std::size_t>(group.size());
  pieces_.reserve(usual);
  requests_.reserve(usual);
  ended_.reserve(usual);
  statuses_.reserve(usual);
}

MpiOperation::~MpiOperation() {
  if (in_use_) cancel();
}

void MpiOperation::begin(const char* name, Channel channel) {
  name_ = name;
  channel_ = channel;
  pieces_.clear();
  own_out_ = {};
  own_in_ = reduced_ = {};
}

void MpiOperation::send(int to, std::span<const std::byte> bytes) {
  if (channel_ == Channel::collectives && to == me_) {
    own_out_ = bytes;
  } else if (!bytes.empty()) {
    add(group_.root_rank(to), false, const_cast<std::byte*>(bytes.data()), bytes.size());
  }
}

void MpiOperation::receive(int from, std::span<std::byte> bytes) {
  if (channel_ == Channel::collectives && from == me_) {
    own_in_ = bytes;
  } else if (!bytes.empty()) {
    add(group_.root_rank(from), true, bytes.data(), bytes.size());
  }
}

void MpiOperation::exchange_empty(int peer) {
  if (peer == me_) return;
  pieces_.push_back({group_.root_rank(peer), true, nullptr, 0});
  pieces_.push_back({group_.root_rank(peer), false, nullptr, 0});
}

void MpiOperation::add(int peer, bool incoming, std::byte* data, std::size_t size) {
  for (std::size_t at = 0; at < size; at += kPieceBytes)
    pieces_.push_back({peer, incoming, data + at, std::min(kPieceBytes, size - at)});
}

std::span<std::byte> MpiOperation::reduce(std::span<std::byte> values, ValueType type, Reduction reduction) {
  reduced_ = values;
  value_type_ = type;
  reduction_ = reduction;
  gathered_.resize(values.size() * static_cast<std::size_t>(group_.size()));
  return gathered_;
}

void MpiOperation::publish() {
  copy_own();
  requests_.assign(pieces_.size(), MPI_REQUEST_NULL);
  ended_.resize(pieces_.size());
  statuses_.resize(pieces_.size());
  open_ = pieces_.size();
  root_.begin(*this);
  in_use_ = true;
  const int tag = 2 * group_.number + (channel_ == Channel::collectives ? 1 : 0);
  for (const bool incoming : {true, false}) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (piece.incoming != incoming) continue;
      const int size = static_cast<int>(piece.size);
      const int code =
          incoming ? MPI_Irecv(piece.data, size, MPI_BYTE, piece.peer, tag, root_.bytes(), &requests_[i])
                   : MPI_Isend(piece.data, size, MPI_BYTE, piece.peer, tag, root_.bytes(), &requests_[i]);
      require_success(code, root_.rank(), incoming ? "MPI_Irecv" : "MPI_Isend");
      if (!incoming) root_.count_sent(piece.peer);
    }
  }
}

void MpiOperation::copy_own() {
  if (own_out_.data() != own_in_.data() && !own_out_.empty())
    std::memcpy(own_in_.data(), own_out_.data(), own_out_.size());
}

bool MpiOperation::test() {
  if (open_ == 0) return true;
  Session::require_open(root_.rank());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(),
                                statuses_.data());
  if (code != MPI_ERR_IN_STATUS) require_success(code, root_.rank(), "MPI_Testsome");
  int failed = MPI_SUCCESS;  // thrown after all pieces are counted
  for (int i = 0; i < (count == MPI_UNDEFINED ? 0 : count); ++i) {
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    const int of_piece = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
    finish(pieces_[static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)])], status);
    if (of_piece != MPI_SUCCESS && of_piece != MPI_ERR_TRUNCATE) failed = of_piece;
  }
  require_success(failed, root_.rank(), "MPI_Testsome");
  return open_ == 0;
}

void MpiOperation::finish(const Piece& piece, const MPI_Status& status) {
  --open_;
  if (!piece.incoming) return;
  root_.count_received(piece.peer);
  MPI_Count size = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &size);
  if (static_cast<std::size_t>(size) == piece.size) return;
  root_.abort({piece.peer, root_.rank(), root_.rank(),
               fmt::format("rank {} sends {} bytes, where rank {} expects {} bytes in {}", piece.peer, size,
                           root_.rank(), piece.size, name_)});
}

void MpiOperation::list_absent(std::vector<int>& ranks) const {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL) ranks.push_back(pieces_[i].peer);
}

void MpiOperation::carry_out() {
  root_.wait(*this);
  retire();
  if (reduced_.empty()) return;
  const auto n = static_cast<std::int64_t>(reduced_.size() / sizeof(std::int64_t));
  reduce_on_host(gathered_.data(), group_.size(), n, value_type_, reduction_, reduced_.data());
}

void MpiOperation::cancel() noexcept {
  try {
    if (!root_.aborted() && !test()) root_.leave_unfinished(name_);
  } catch (const std::exception& error) {
    root_.abort_for("failed", error.what());
  }
  if (root_.aborted()) root_.drain();
  retire();
}

void MpiOperation::cancel_receives_of_the_stopped() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || !pieces_[i].incoming || !root_.has_all_of(pieces_[i].peer))
      continue;
    MPI_Cancel(&requests_[i]);
    MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
    --open_;
  }
}

void MpiOperation::retire() noexcept {
  root_.end_of(*this);
  in_use_ = false;
}

}  // namespace evenkeel::internal
