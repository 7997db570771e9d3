// The parts of the Python module. Each function adds its names to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace evenkeel::python {

void translate_errors();
void bind_errors(nanobind::module_& module);
void bind_profile(nanobind::module_& module);
void bind_recording(nanobind::module_& module);  // after bind_profile
void bind_placement(nanobind::module_& module);
void bind_place(nanobind::module_& module);
void bind_plan(nanobind::module_& module);  // after bind_place
void bind_cost(nanobind::module_& module);  // after bind_place
void bind_memory(nanobind::module_& module);
void bind_evaluate(nanobind::module_& module);  // after bind_place and bind_recording
void bind_compare(nanobind::module_& module);   // after bind_place and bind_recording
void bind_rebalance(nanobind::module_& module);
void bind_routes(nanobind::module_& module);  // after bind_placement

}  // namespace evenkeel::python
