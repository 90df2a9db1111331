// A mixture of experts made of a dense model (sparse upcycling, Komatsuzaki et al. 2022, arXiv:2212.05055): every
// expert is the dense MLP, and routers are drawn. The weights of a token's experts add up to 1, so the model computes
// at first what the dense one computes.
#pragma once

#include "checkpoint/model_reader.h"

#include <filesystem>
#include <string>

namespace echelon {

struct Upcycling {
  std::int64_t num_experts = 0, num_experts_per_tok = 0;  // 0: none
  [[nodiscard]] bool exists() const { return num_experts > 0; }
};

/// "8,2": experts, and choices of a token. Throws Error.
[[nodiscard]] Upcycling parse_upcycling(const std::string& text);

class UpcycledWeights {
 public:
  /// Of a folder of llama, mistral or qwen3, whose mixture is mixtral or qwen3_moe. Throws Error if there is none.
  UpcycledWeights(const std::filesystem::path& source, const Upcycling& upcycling);

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  /// Values of `dtype` at `out`, as ModelReader::read.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;

 private:
  void draw_router(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;
  void repeat(const std::string& dense, const TensorSlice& slice, DType dtype, std::byte* out) const;

  ModelReader dense_;
  ModelSpec spec_;
};

}  // namespace echelon
