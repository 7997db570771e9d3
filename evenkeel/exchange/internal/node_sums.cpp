#include "evenkeel/exchange/internal/node_sums.h"

#include <numeric>

#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/exchange/internal/slices.h"

namespace evenkeel {

NodeSums::NodeSums(const Dispatched& dispatched, const NodeForwarding& forwarding, Arena& arena,
                   std::int64_t hidden, DataType type)
    : dispatched_(dispatched), forwarding_(forwarding), arena_(arena), hidden_(hidden), type_(type) {
  number_home_rows();
}

void NodeSums::number_home_rows() {
  std::vector<std::int32_t> tokens;  // of the rows that come home
  first_row_.assign(static_cast<std::size_t>(dispatched_.tokens) + 1, 0);
  for (RankId rank : indices<RankId>(forwarding_.direct_out.size())) {
    const RowRange out = forwarding_.direct_out[rank.offset()];
    const auto first = static_cast<std::size_t>(dispatched_.peer(rank).out_row + out.begin);
    for (const std::int32_t token :
         dispatched_.token_elsewhere().subspan(first, static_cast<std::size_t>(out.count))) {
      tokens.push_back(token);
      ++first_row_[static_cast<std::size_t>(token) + 1];
    }
  }
  std::partial_sum(first_row_.begin(), first_row_.end(), first_row_.begin());
  std::vector<std::size_t> next = first_row_;
  home_rows_.resize(tokens.size());
  for (std::size_t row = 0; row < tokens.size(); ++row)
    home_rows_[next[static_cast<std::size_t>(tokens[row])]++] = static_cast<std::int32_t>(row);
}

void NodeSums::add_in_node(Slices& slices, Stream& stream, float* sums, bool has_own, const char* name) {
  const auto sum_of = [&](std::int64_t received) {
    const bool is_behind = has_own && received >= dispatched_.own_row;
    return sums + (received + (is_behind ? dispatched_.own_rows : 0)) * hidden_;
  };
  std::int64_t sent = 0;
  for (const NodeForwarding::Rows& each : forwarding_.receives) sent += each.range.count;
  const Buffer back = arena_.allocate(sent * row_bytes(), "sums to gateways");
  const Buffer came =
      arena_.allocate(std::ssize(forwarding_.forwarded_rows) * row_bytes(), "sums of the node");
  std::int64_t at = 0;
  for (const auto& [rank, range] : forwarding_.receives) {
    const std::span<std::byte> rounded = rows_in(back.bytes(), {at, range.count});
    rows::from_f32(range.count * hidden_, sum_of(range.begin), rounded.data(), type_);
    slices.send(rank, rounded);
    at += range.count;
  }
  for (const auto& [rank, range] : forwarding_.sends) slices.receive(rank, rows_in(came.bytes(), range));
  slices.post(stream, name).wait();
  for (std::size_t i = 0; i < forwarding_.forwarded_rows.size(); ++i)
    rows::add_scaled(hidden_, rows::at(came.data(), static_cast<std::int64_t>(i) * hidden_, type_), type_,
                     1.0f, sum_of(forwarding_.forwarded_rows[i]));

  std::int64_t returning = 0;
  for (const RankId rank : slices.others()) returning += forwarding_.direct_in[rank.offset()].count;
  returning_ = arena_.allocate(returning * row_bytes(), "sums to send");
  at = 0;
  std::int64_t received = 0;  // rows received from earlier ranks
  for (const RankId rank : slices.others()) {
    const RowRange in = forwarding_.direct_in[rank.offset()];
    rows::from_f32(in.count * hidden_, sum_of(received + in.begin),
                   rows_in(returning_.bytes(), {at, in.count}).data(), type_);
    at += in.count;
    received += dispatched_.peer(rank).in_rows;
  }
}

void NodeSums::queue(Slices& slices, std::span<std::byte> home) const {
  std::int64_t out = 0, in = 0;
  for (const RankId rank : slices.others()) {
    const std::int64_t returning = forwarding_.direct_in[rank.offset()].count;
    const std::int64_t coming = forwarding_.direct_out[rank.offset()].count;
    slices.send(rank, rows_in(returning_.bytes(), {out, returning}));
    slices.receive(rank, rows_in(home, {in, coming}));
    out += returning;
    in += coming;
  }
}

std::span<const std::int32_t> NodeSums::rows_of(std::int64_t token) const {
  const auto first = first_row_.begin() + token;
  return std::span(home_rows_).subspan(*first, *(first + 1) - *first);
}

}  // namespace evenkeel
