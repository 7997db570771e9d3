// The Python module evenkeel._native. The package beside it (python/evenkeel) holds what people call: it
// turns their arrays, paths and words into what is taken here.
#include "python/bindings/bind.h"

NB_MODULE(_native, module) {
  using namespace evenkeel::python;
  // A program may end while models still hold our objects: that is no fault of theirs.
  nanobind::set_leak_warnings(false);
  module.attr("version") = EVENKEEL_VERSION;
  translate_errors();
  bind_errors(module);
  bind_profile(module);
  bind_recording(module);
  bind_placement(module);
  bind_place(module);
  bind_plan(module);
  bind_cost(module);
  bind_memory(module);
  bind_evaluate(module);
  bind_compare(module);
  bind_rebalance(module);
  bind_routes(module);
}
