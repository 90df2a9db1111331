// OLMo 3 (Ai2 2025): OLMo 2 with a window in three of four layers. RoPE is scaled in the others alone.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_olmo3() {
  FamilyDescription olmo3 = describe_olmo2();
  olmo3.model_type = "olmo3";
  olmo3.architecture = "Olmo3ForCausalLM";
  olmo3.windows = WindowFields::of_layers;
  olmo3.absent_window = 4096;
  olmo3.absent_window_pattern = 4;
  olmo3.rope = {.absent_theta = 5e5, .differs_with_windows = true};
  return olmo3;
}

}  // namespace echelon
