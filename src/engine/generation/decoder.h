// A model in memory that continues one sequence, token by token. Ranks of one mesh have the same tokens, and divide the
// experts of a mixture among them.
#pragma once

#include "backend/backend.h"
#include "blueprint/generation_plan.h"
#include "checkpoint/model_reader.h"
#include "nn/decoder/decode.h"
#include "tensor/arena.h"

#include <cstdint>
#include <vector>

namespace echelon {

/// What a sequence may have; the prompt is computed in one call.
struct DecoderRoom {
  std::int64_t num_prompt_tokens = 0, num_positions = 0;
};

class Decoder {
 public:
  /// In float32, on a rank of generation_mesh(). Throws Error if the model has fewer positions.
  Decoder(const ModelSpec& model, DecoderRoom room, RankDevice& device);

  /// The weights. Throws Error as ModelReader::read.
  void load(const ModelReader& reader);
  [[nodiscard]] bool has_room(DecoderRoom room) const {
    return room.num_prompt_tokens <= room_.num_prompt_tokens && room.num_positions <= room_.num_positions;
  }
  /// The next tokens are the first of another sequence.
  void restart() { num_decoded_ = 0; }
  /// The logits after `tokens`, which continue all tokens before; a collective.
  [[nodiscard]] std::vector<double> decode(const std::vector<std::int32_t>& tokens);

 private:
  Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) {
    return arena_.tensor(plan_.at(key).offset, dtype, sizes);
  }

  DecoderRoom room_;
  GenerationModel model_;
  MemoryPlan plan_;
  Arena arena_;
  Ops& ops_;
  Mesh& mesh_;
  std::vector<KvCache> caches_;
  RouterState router_;
  std::int64_t num_decoded_ = 0;
};

}  // namespace echelon
