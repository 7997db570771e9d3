#include "evenkeel/plan/routes.h"

#include <type_traits>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

[[noreturn]] void throw_not_counted() {
  throw InvalidArgument("experts", "the counts of this rank are not those of its choices",
                        "the choices that were counted");
}

// Numbers the rows of the positions to one rank, of which `assignments` has what each is, from `first` on.
// Fills the message to this rank; returns the number behind the last row. A token whose row_of is below
// `first` has no row there yet.
template <class Index>
Index number_rows(std::span<const Index> assignments, int k, Index first, std::span<Index> tokens,
                  std::span<Index> row_of, std::span<Index> message) {
  using Unsigned = std::make_unsigned_t<Index>;
  Index rows = first;
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    const auto token =
        static_cast<std::size_t>(static_cast<Unsigned>(assignments[i]) / static_cast<Unsigned>(k));
    Index& row = row_of[token];
    if (row < first) {
      tokens[static_cast<std::size_t>(rows)] = static_cast<Index>(token);
      row = rows++;
    }
    message[i + 1] = row - first;
  }
  message[0] = rows - first;
  return rows;
}

}  // namespace

template <class Index>
void Router<Index>::send(std::span<const Index> experts, int k, const Deal& deal, RankId me,
                         const SentRoutes<Index>& routes, std::span<Index> row_of) {
  open_cursors(deal, me, routes);
  place(experts, routes);
  std::ranges::fill(row_of, Index{-1});
  std::span<const Index> assignments = routes.assignments;
  std::span<Index> messages = routes.messages;
  Index rows = 0;
  for (RankId rank : indices<RankId>(deal.sent().size())) {
    const std::size_t count = rank == me ? 0 : static_cast<std::size_t>(deal.sent()[rank.offset()]);
    rows = number_rows(assignments.first(count), k, rows, routes.tokens, row_of, messages);
    assignments = assignments.subspan(count);
    messages = messages.subspan(count + 1);
  }
  if (!routes.own_message.empty())
    number_rows(assignments, k, rows, routes.tokens, row_of, routes.own_message);
}

template <class Index>
void Router<Index>::open_cursors(const Deal& deal, RankId me, const SentRoutes<Index>& routes) {
  destinations_.resize(deal.sent().size());
  Index sent = 0;
  for (RankId rank : indices<RankId>(destinations_.size())) {
    destinations_[rank.offset()] = {sent, routes.first_sent};
    if (rank != me) sent += static_cast<Index>(deal.sent()[rank.offset()]);
  }
  destinations_[me.offset()] = {sent, routes.first_own - sent};
  cursors_.resize(deal.num_experts());
  for (ExpertId expert : indices<ExpertId>(cursors_.size()))
    cursors_[expert.offset()] = {.rest = deal.pieces(expert)};
}

template <class Index>
void Router<Index>::open_piece(Cursor& cursor) const {
  if (cursor.rest.empty()) throw_not_counted();
  const Deal::Piece& piece = cursor.rest.front();
  const Destination& to = destinations_[piece.rank.offset()];
  cursor = {static_cast<Index>(piece.count), static_cast<Index>(to.begin + piece.before), to.to_result,
            cursor.rest.subspan(1)};
}

template <class Index>
void Router<Index>::place(std::span<const Index> experts, const SentRoutes<Index>& routes) {
  std::size_t left = routes.assignments.size();
  for (std::size_t at = 0; at < experts.size(); ++at) {
    const Index expert = experts[at];
    if (expert == -1) {
      routes.result_of[at] = routes.no_result;
      continue;
    }
    if (static_cast<std::size_t>(expert) >= cursors_.size()) throw_not_counted();
    Cursor& cursor = cursors_[static_cast<std::size_t>(expert)];
    if (cursor.left == 0) open_piece(cursor);
    --cursor.left;
    --left;
    const Index position = cursor.position++;
    routes.assignments[static_cast<std::size_t>(position)] = static_cast<Index>(at);
    routes.result_of[at] = position + cursor.to_result;
  }
  if (left != 0) throw_not_counted();
}

template class Router<std::int32_t>;
template class Router<std::int64_t>;

}  // namespace evenkeel
