// Makes a Hugging Face folder of another one or of a checkpoint.
#pragma once

#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/upcycled_weights.h"
#include "tensor/dtype.h"

#include <filesystem>
#include <optional>

namespace echelon {

struct ConvertOptions {
  std::optional<DType> dtype{};  // of the weights of the model; none: their own
  bool text_only = false;        // of a model of images and text, the language model alone
  // Adapters that are added to the weights of a Hugging Face folder: of PEFT, or of a run's checkpoint.
  std::filesystem::path merged{};
  Upcycling upcycling{};               // of a Hugging Face folder of a dense model
  ReadSpecialTokens special_tokens{};  // of a tokenizer that goes along
};

/// From a checkpoint, the folder is the one that its run would have written after that step. From a Hugging Face folder
/// it has equal weights, tensor by tensor, and everything else that the folder had. Or the weights get another dtype.
/// Of the checkpoint of a run with adapters, or of PEFT's folder, the folder has the adapters alone.
/// `folder` must not exist, or be empty. Memory use is constant. Throws Error if `source` is damaged or the model
/// cannot be written, Failure if the machine cannot write.
void convert_model(const std::filesystem::path& source, const std::filesystem::path& folder,
                   const ConvertOptions& options);

}  // namespace echelon
