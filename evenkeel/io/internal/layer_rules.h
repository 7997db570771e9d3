// The ways in which a config.json says which layers have experts (docs/formats.md#layers-with-experts).
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"

namespace evenkeel::internal {

struct LayerCounts {
  int hidden = 0;
  int mtp = 0;  // of multi-token prediction
};

struct LayerRule {
  std::string keys;  // as they stand in the file
  // Of the hidden layers, and behind them of those of multi-token prediction where the rule says it.
  std::vector<bool> has_experts;
};

// Whether any key of a rule is there.
bool has_layer_rule(const ConfigKeys& config);
// The number of layers by the list that says something of each; 0 where there is none.
int listed_layers(const ConfigKeys& config);
// Every rule of the config. Throws ParseError: a key is missing that a rule needs, a number or word that none
// of them has, a list of another length.
std::vector<LayerRule> layer_rules(const ConfigKeys& config, const LayerCounts& count);

// Of `num_layers` layers those that choose experts by a table of tokens, where the config says it.
std::vector<bool> table_rule(const ConfigKeys& config, int num_layers);

// Which layers of multi-token prediction have experts, where the rules do not say it.
std::vector<bool> mtp_rule(const ConfigKeys& config, const Family* family, int num_mtp_layers);

}  // namespace evenkeel::internal
