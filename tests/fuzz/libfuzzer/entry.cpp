// What libFuzzer calls. ECHELON_FUZZ_TARGET is one of the functions of targets.h.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return echelon::fuzz::ECHELON_FUZZ_TARGET(data, size);
}
