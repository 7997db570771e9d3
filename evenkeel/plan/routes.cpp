#include "evenkeel/plan/routes.h"

#include <cstdint>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

[[noreturn]] void throw_not_counted() {
  throw InvalidArgument("experts", "the expert ids of this rank's tokens do not match its counts",
                        "the expert ids that were counted");
}

// Numbers the rows that go to one rank, from `first` on; `assignments` are the positions sent to it. Fills
// the message to this rank and returns the number after the last row. A token whose `row_of` is below `first`
// has no row in this message yet.
std::int32_t number_rows(std::span<const std::int32_t> assignments, int k, std::int32_t first,
                         std::span<std::int32_t> tokens, std::span<std::int32_t> row_of,
                         std::span<std::int32_t> message) {
  std::int32_t rows = first;
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    const auto token = static_cast<std::uint32_t>(assignments[i]) / static_cast<std::uint32_t>(k);
    std::int32_t& row = row_of[token];
    if (row < first) {
      tokens[static_cast<std::size_t>(rows)] = static_cast<std::int32_t>(token);
      row = rows++;
    }
    message[i + 1] = row - first;
  }
  message[0] = rows - first;
  return rows;
}

}  // namespace

void Router::send(std::span<const std::int32_t> experts, int k, const Deal& deal, RankId me,
                  const SentRoutes& routes, std::span<std::int32_t> row_of) {
  open_cursors(deal, me, routes);
  place(experts, routes);
  std::ranges::fill(row_of, std::int32_t{-1});
  std::span<const std::int32_t> assignments = routes.assignments;
  std::span<std::int32_t> messages = routes.messages;
  std::int32_t rows = 0;
  for (RankId rank : indices<RankId>(deal.sent().size())) {
    const std::size_t count = rank == me ? 0 : static_cast<std::size_t>(deal.sent()[rank.offset()]);
    rows = number_rows(assignments.first(count), k, rows, routes.tokens, row_of, messages);
    assignments = assignments.subspan(count);
    messages = messages.subspan(count + 1);
  }
  if (!routes.own_message.empty())
    number_rows(assignments, k, rows, routes.tokens, row_of, routes.own_message);
}

void Router::open_cursors(const Deal& deal, RankId me, const SentRoutes& routes) {
  destinations_.resize(deal.sent().size());
  std::int32_t sent = 0;
  for (RankId rank : indices<RankId>(destinations_.size())) {
    destinations_[rank.offset()] = {sent, routes.first_sent};
    if (rank != me) sent += static_cast<std::int32_t>(deal.sent()[rank.offset()]);
  }
  destinations_[me.offset()] = {sent, routes.first_own - sent};
  cursors_.resize(deal.num_experts());
  for (ExpertId expert : indices<ExpertId>(cursors_.size()))
    cursors_[expert.offset()] = {.later_pieces = deal.pieces(expert)};
}

void Router::open_piece(Cursor& cursor) const {
  if (cursor.later_pieces.empty()) throw_not_counted();
  const Deal::Piece& piece = cursor.later_pieces.front();
  const Destination& to = destinations_[piece.rank.offset()];
  cursor = {static_cast<std::int32_t>(piece.count), static_cast<std::int32_t>(to.begin + piece.before),
            to.to_result, cursor.later_pieces.subspan(1)};
}

void Router::place(std::span<const std::int32_t> experts, const SentRoutes& routes) {
  std::size_t left = routes.assignments.size();
  for (std::size_t at = 0; at < experts.size(); ++at) {
    const std::int32_t expert = experts[at];
    if (expert == -1) {
      routes.result_of[at] = routes.no_result;
      continue;
    }
    if (static_cast<std::size_t>(expert) >= cursors_.size()) throw_not_counted();
    Cursor& cursor = cursors_[static_cast<std::size_t>(expert)];
    if (cursor.left == 0) open_piece(cursor);
    --cursor.left;
    --left;
    const std::int32_t position = cursor.position++;
    routes.assignments[static_cast<std::size_t>(position)] = static_cast<std::int32_t>(at);
    routes.result_of[at] = position + cursor.to_result;
  }
  if (left != 0) throw_not_counted();
}

}  // namespace evenkeel
