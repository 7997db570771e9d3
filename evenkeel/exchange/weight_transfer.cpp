#include "evenkeel/exchange/weight_transfer.h"

#include <algorithm>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/plan/away.h"

namespace evenkeel {

namespace {
// In elements. Parts begin on cache lines: products on unaligned parts lose a quarter of their speed.
constexpr std::int64_t kPartAlignment = 32;

std::int64_t aligned(std::int64_t elements) {
  return round_up(elements, kPartAlignment);
}

}  // namespace

BorrowedElements borrowed_elements(const std::array<std::int64_t, kExpertParts>& elements) {
  BorrowedElements borrowed{aligned(elements.front()), 0};
  for (const std::int64_t part : std::span(elements).subspan(1)) borrowed.rest += aligned(part);
  return borrowed;
}

WeightTransfer::WeightTransfer(Communicator& comm, Arena& arena,
                               const std::array<std::int64_t, kExpertParts>& elements,
                               std::int64_t bytes_per_element, Nodes nodes)
    : comm_(comm),
      arena_(arena),
      elements_(elements),
      borrowed_(borrowed_elements(elements)),
      bytes_per_element_(bytes_per_element),
      nodes_(std::move(nodes)),
      forwarding_comm_(nodes_.two_levels() ? comm.split(0) : nullptr) {}

template <class Part>
std::array<Part, kExpertParts> WeightTransfer::parts_in(Part block, std::int64_t unit, std::size_t first,
                                                        std::size_t end) const {
  std::array<Part, kExpertParts> parts;
  std::int64_t begin = 0;
  for (std::size_t part = first; part < end; ++part) {
    if (elements_[part] > 0)
      parts[part] = block.subspan(static_cast<std::size_t>(begin * unit),
                                  static_cast<std::size_t>(elements_[part] * unit));
    begin += aligned(elements_[part]);
  }
  return parts;
}

std::int64_t WeightTransfer::foreign_gradient_bytes(const StepPlan& plan,
                                                    const LayerPlacement& placement) const {
  std::int64_t gradients = 0;
  for_each_away(plan, placement, [&](ExpertId, RankId, RankId rank) { gradients += rank == comm_.rank(); });
  return gradients * borrowed_.all() * std::int64_t{sizeof(float)};
}

bool WeightTransfer::awaits_gradients(const StepPlan& plan, const LayerPlacement& placement) const {
  bool awaits = false;
  for_each_away(plan, placement, [&](ExpertId, RankId owner, RankId) { awaits |= owner == comm_.rank(); });
  return awaits;
}

void WeightTransfer::reserve(const StepPlan& any) {
  const auto parts = kExpertParts - static_cast<std::size_t>(std::ranges::count(elements_, 0));
  sends_.reserve(parts * any.most_segments());
  receives_.reserve(kExpertParts);
  foreign_gradients_.reserve(any.most_segments());
  returns_.reserve(any.most_segments());
  sending_.reserve();
  receiving_.reserve();
  senders_.reserve(any.most_segments());
}

void WeightTransfer::lend(const StepPlan& plan, std::span<const ExpertParts> natives) {
  nodes_.find_senders(plan.transfers(), senders_);
  sends_.clear();
  for (std::size_t i = 0; i < plan.transfers().size(); ++i)
    if (const Transfer& transfer = plan.transfers()[i];
        transfer.from == comm_.rank() && senders_[i] == comm_.rank())
      for (const auto& part : natives[transfer.expert.offset()])
        if (!part.empty()) sends_.push_back({transfer.to, part});
  comm_.send_receive(sends_, {}, sending_, "weight transfer");
}

ExpertParts WeightTransfer::receive(const StepPlan& plan, std::size_t index, std::size_t first,
                                    std::size_t end, Buffer& arrival) {
  const Transfer& transfer = plan.transfers()[index];
  if (arrival.data() == nullptr) arrival = arena_.allocate(arrival_bytes(), "arriving weights");
  const auto parts = parts_in(arrival.bytes(), bytes_per_element_, first, end);
  const RankId from = senders_[index];
  receives_.clear();
  for (const auto& part : parts)
    if (!part.empty()) receives_.push_back({from, part});
  Communicator& comm = from == transfer.from ? comm_ : *forwarding_comm_;
  comm.send_receive({}, receives_, receiving_, "weight transfer").wait();
  ExpertParts received;
  std::ranges::copy(parts, received.begin());
  if (from != transfer.from || !nodes_.may_forward(transfer.from, transfer.to)) return received;
  sends_.clear();
  for (std::size_t i = 0; i < plan.transfers().size(); ++i)
    if (const Transfer& other = plan.transfers()[i];
        other.expert == transfer.expert && other.from == transfer.from && senders_[i] == comm_.rank())
      for (const auto& part : received)
        if (!part.empty()) sends_.push_back({other.to, part});
  forwarding_comm_->send_receive(sends_, {}, forwarding_, "weight transfer");
  return received;
}

void WeightTransfer::open_gradients(const StepPlan& plan, const LayerPlacement& placement) {
  list_gradients(plan, placement);
  gradients_ = arena_.allocate_for<float>(std::ssize(foreign_gradients_) * borrowed_.all(),
                                          "foreign weight gradients");
  std::ranges::fill(gradients_.as<float>(), 0.0f);
  for (std::size_t i = 0; i < foreign_gradients_.size(); ++i)
    foreign_gradients_[i].parts = parts_in(gradient_of(i), 1, 0, kExpertParts);
}

// Lists the gradients that this rank sends and those that it receives.
void WeightTransfer::list_gradients(const StepPlan& plan, const LayerPlacement& placement) {
  foreign_gradients_.clear();
  returns_.clear();
  for_each_away(plan, placement, [&](ExpertId expert, RankId owner, RankId rank) {
    if (rank == comm_.rank()) foreign_gradients_.push_back({expert, owner, {}});
    if (owner == comm_.rank()) returns_.push_back({expert, rank});
  });
}

std::span<float> WeightTransfer::gradient_of(std::size_t index) const {
  const auto each = static_cast<std::size_t>(borrowed_.all());
  return gradients_.as<float>().subspan(index * each, each);
}

void WeightTransfer::return_gradients(std::span<const GradientParts> owned) {
  sends_.clear();
  for (std::size_t i = 0; i < foreign_gradients_.size(); ++i)
    sends_.push_back({foreign_gradients_[i].owner, std::as_bytes(gradient_of(i))});
  const Event sent = comm_.send_receive(sends_, {}, sending_, "return gradients");

  const Buffer arrived =
      arena_.allocate_for<float>(returns_.empty() ? 0 : borrowed_.all(), "returned gradient");
  for (const Return& home : returns_) {
    const std::span<float> block = arrived.as<float>();
    receives_.assign(1, {home.from, std::as_writable_bytes(block)});
    comm_.send_receive({}, receives_, receiving_, "return gradients").wait();
    const GradientParts parts = parts_in(block, 1, 0, kExpertParts);
    for (std::size_t part = 0; part < kExpertParts; ++part)
      rows::add_scaled(static_cast<std::int64_t>(parts[part].size()), parts[part].data(), 1.0f,
                       owned[home.expert.offset()][part].data());
  }
  sent.wait();
  foreign_gradients_.clear();
  gradients_.release();
}

}  // namespace evenkeel
