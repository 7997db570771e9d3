#include "evenkeel/exchange/weight_transfer.h"

#include <algorithm>

#include "evenkeel/device/cpu/rows.h"

namespace evenkeel {

namespace {
// Elements: parts begin on boundaries of a cache line, without which products lose a quarter of their speed.
constexpr std::int64_t kPartAlignment = 32;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}
}  // namespace

std::int64_t borrowed_elements(const std::array<std::int64_t, kExpertParts>& elements) {
  std::int64_t all = 0;
  for (const std::int64_t part : elements) all += aligned(part);
  return all;
}

WeightTransfer::WeightTransfer(Communicator& comm, Arena& arena,
                               const std::array<std::int64_t, kExpertParts>& elements,
                               std::int64_t bytes_per_element)
    : comm_(comm), arena_(arena), bytes_per_element_(bytes_per_element) {
  for (std::size_t part = 0; part < kExpertParts; ++part) {
    elements_[part] = elements[part];
    part_begin_[part + 1] = part_begin_[part] + aligned(elements[part]);
  }
}

// Cuts a block into parts; `unit` is what one element takes of the span.
template <class Part>
std::array<Part, kExpertParts> WeightTransfer::parts_of(Part block, std::int64_t unit) const {
  std::array<Part, kExpertParts> parts;
  for (std::size_t part = 0; part < kExpertParts; ++part)
    parts[part] = block.subspan(static_cast<std::size_t>(part_begin_[part] * unit),
                                static_cast<std::size_t>(elements_[part] * unit));
  return parts;
}

std::int64_t WeightTransfer::borrows(const StepPlan& plan) const {
  return std::ranges::count(plan.transfers(), comm_.rank(), &Transfer::to);
}

std::int64_t WeightTransfer::away_bytes(const StepPlan& plan, const LayerPlacement& placement) const {
  const RankId me = comm_.rank();
  std::int64_t away = 0;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    if (placement.owner(expert) != me && std::ranges::find(segments, me, &Segment::rank) != segments.end())
      ++away;
  }
  return away * block_elements() * std::int64_t{sizeof(float)};
}

void WeightTransfer::lend(const StepPlan& plan, std::span<const ExpertParts> natives) {
  const std::size_t most = plan.most_segments();  // room for any plan, so that no later one allocates
  sends_.reserve(kExpertParts * most);
  receives_.reserve(kExpertParts);
  sends_.clear();
  for (const Transfer& transfer : plan.transfers())
    if (transfer.from == comm_.rank())
      for (const auto& part : natives[transfer.expert.offset()]) sends_.push_back({transfer.to, part});
  comm_.send_receive(sends_, {}, sending_, "weight transfer");
}

ExpertParts WeightTransfer::land(const Transfer& transfer, Buffer& landing) {
  if (landing.data() == nullptr) landing = arena_.allocate(landing_bytes(), "arriving weights");
  receives_.clear();
  for (const auto& part : parts_of(landing.bytes(), bytes_per_element_))
    receives_.push_back({transfer.from, part});
  comm_.send_receive({}, receives_, receiving_, "weight transfer").wait();
  return parts_of(std::span<const std::byte>(landing.bytes()), bytes_per_element_);
}

void WeightTransfer::finish() {
  sending_.synchronize();
}

void WeightTransfer::open_gradients(const StepPlan& plan, const LayerPlacement& placement) {
  const RankId me = comm_.rank();
  away_.reserve(plan.most_segments());
  returns_.reserve(plan.most_segments());
  away_.clear();
  returns_.clear();
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const RankId owner = placement.owner(expert);
    const auto segments = plan.segments(expert);
    for (auto segment = segments.begin(); segment != segments.end(); ++segment) {
      const bool seen =
          std::any_of(segments.begin(), segment, [&](const Segment& s) { return s.rank == segment->rank; });
      if (segment->rank == owner || seen) continue;
      if (segment->rank == me) away_.push_back({expert, owner, {}});
      if (owner == me) returns_.push_back({expert, segment->rank});
    }
  }
  const auto block = static_cast<std::size_t>(block_elements());
  gradients_ =
      arena_.allocate_for<float>(static_cast<std::int64_t>(away_.size() * block), "foreign weight gradients");
  std::ranges::fill(gradients_.as<float>(), 0.0f);
  for (std::size_t i = 0; i < away_.size(); ++i)
    away_[i].parts = parts_of(gradients_.as<float>().subspan(i * block, block), 1);
}

void WeightTransfer::return_gradients(std::span<const GradientParts> owned) {
  const auto block = static_cast<std::size_t>(block_elements());
  sends_.clear();
  for (std::size_t i = 0; i < away_.size(); ++i)
    sends_.push_back({away_[i].owner, std::as_bytes(gradients_.as<float>().subspan(i * block, block))});
  const Event sent = comm_.send_receive(sends_, {}, sending_, "return gradients");

  const Buffer arrived =
      arena_.allocate_for<float>(returns_.empty() ? 0 : block_elements(), "returned gradient");
  for (const Return& home : returns_) {
    const ReceiveSlice slice{home.from, arrived.bytes()};
    comm_.send_receive({}, {&slice, 1}, receiving_, "return gradients").wait();
    const auto parts = parts_of(arrived.as<float>(), 1);
    for (std::size_t part = 0; part < kExpertParts; ++part)
      rows::add_scaled(static_cast<std::int64_t>(parts[part].size()), parts[part].data(), 1.0f,
                       owned[home.expert.offset()][part].data());
  }
  sent.wait();
  away_.clear();
  gradients_.release();
}

}  // namespace evenkeel
