// The common part of passes with two chunks in flight: chunks take turns in two places, with their buffers at
// either end of the arena's gap. overlap.h says in which order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "evenkeel/exchange/overlapped_exchange.h"
#include "evenkeel/layer/internal/experts_backward.h"
#include "evenkeel/layer/internal/layer_body.h"
#include "evenkeel/layer/internal/overlap.h"
#include "evenkeel/layer/internal/saved_step.h"

namespace evenkeel::internal {

class OverlappedPass {
 public:
  OverlappedPass(LayerBody& layer, SavedStep& step)
      : layer_(layer), step_(step), first_chunk_(layer.clock.statistics().chunks) {}

  void expect(std::size_t i) {
    enter(Phase::dispatch, i);
    layer_.overlapped.expect(at(i).travelling);
  }
  void arrive(std::size_t i) {
    enter(Phase::dispatch, i);
    layer_.overlapped.arrive(at(i).travelling);
  }

 protected:
  struct Flight {
    explicit Flight(Lifetime lifetime) : travelling(lifetime) {}
    const Dispatched& dispatched() const { return travelling.dispatched; }

    TravellingChunk travelling;
    SavedActivations saved;
    TokenRows tokens;  // in backward
  };
  // Positions of a half.
  struct Half {
    std::int64_t begin, end;
  };

  // Halves take about as long, whatever the experts on a rank, so that ranks come to their middles together.
  Half half_of(const Dispatched& dispatched, int half) const {
    const std::int64_t middle =
        middle_of(dispatched.groups(), dispatched.positions_here, layer_.positions_a_group);
    return half == 0 ? Half{0, middle} : Half{middle, dispatched.positions_here};
  }
  Flight& at(std::size_t i) { return flights_[i % 2]; }
  // Gives back all that the chunk still holds.
  void leave(std::size_t i) { at(i) = Flight(at(i).travelling.lifetime()); }
  void enter(Phase phase, std::size_t i) { layer_.clock.enter(phase, first_chunk_ + static_cast<int>(i)); }

  LayerBody& layer_;
  SavedStep& step_;

 private:
  int first_chunk_;  // of the pass's
  // The first at the low end: what is borrowed while it travels stays beyond it, at the high one.
  std::array<Flight, 2> flights_ = {Flight(Lifetime::held), Flight(Lifetime::step)};
};

}  // namespace evenkeel::internal
