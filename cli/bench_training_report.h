// The methods over a training run, for people and for programs.
#pragma once

#include "cli/bench_training.h"

namespace evenkeel::cli {

void print_training(const Training& training);
void print_training_json(const Training& training);

}  // namespace evenkeel::cli
