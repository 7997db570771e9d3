// Configs that name modules, as lists of what is not quantized do, may name single experts by their numbers.
#pragma once

#include <string>

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

// A list that names all experts of a layer, and an object that says the same of each, stay true under any
// order. Throws Unsupported, quoting one entry and what is missing, where one names some only or says
// different things of them: it would have to be renumbered, and each tool writes it in its own way.
void require_all_or_no_experts(const Json& config, int num_experts, const std::string& file);

}  // namespace evenkeel::internal
