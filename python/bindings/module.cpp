// The Python module evenkeel._native. People call the package beside it (python/evenkeel), which converts
// their arrays, paths and words for this module.
#include "python/bindings/bind.h"

NB_MODULE(_native, module) {
  using namespace evenkeel::python;
  // A program may end while models still hold our objects, which is no leak.
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
