// Folders that store the experts of a layer in two tensors, as transformers 5 has them in memory: PREFIX.gate_up_proj
// [E, 2 F, D], the gate of an expert above its up projection, and PREFIX.down_proj [E, D, F].
#pragma once

#include "checkpoint/hf/weight_folder.h"
#include "spec/model_spec.h"

namespace echelon {

/// Puts a tensor for each expert, under the family's name, in the place of each such tensor. Throws Error naming the
/// tensor if it is of another shape, or if the folder has an expert twice.
void unstack_experts(const ModelSpec& model, std::map<std::string, WeightFolder::Entry, std::less<>>& entries);

}  // namespace echelon
