#include "train/save/export_model.h"

#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/model_reader.h"
#include "data/tokenizer/embeddings.h"
#include "data/tokenizer/tokenizer_files.h"
#include "spec/groups.h"
#include "train/data/special_tokens.h"

#include <optional>
#include <string>

namespace echelon {
namespace {

std::optional<AdapterConfig> adapter_of(const RunConfig& config, const ModelExport& wanted) {
  if (!config.lora.exists()) return std::nullopt;
  return AdapterConfig{.lora = config.lora,
                       .base = config.checkpoint.initial_load_path,
                       .base_digest = wanted.base,
                       .steps = wanted.step,
                       .source = config.lora.initial_load_path};
}

/// The tokenizer that the folder of the model gets, its own or that of the initial model.
void require_tokenizer_of_model(const RunConfig& config) {
  const std::string& own = config.checkpoint.tokenizer;
  const std::string& initial = config.checkpoint.initial_load_path;
  if (!own.empty()) {
    const std::string remedy = initial.empty() ? "use a larger model.vocab_size, or the tokenizer of the data"
                                               : fmt::format("use the tokenizer of '{}'", initial);
    require_embeddings(own, config.model.vocab_size, fmt::format("checkpoint.tokenizer = '{}'", own), remedy);
  } else if (!initial.empty()) {
    const std::string file = tokenizer_file_in(initial).string();
    require_embeddings(file, config.model.vocab_size, fmt::format("checkpoint.initial_load_path: {}", file),
                       "use checkpoint.tokenizer for the tokenizer that the model was trained with");
  }
}

}  // namespace

void require_exportable(const RunConfig& config) {
  require_sayable(config.model);
  if (!config.checkpoint.tokenizer.empty()) (void)special_tokens(config.checkpoint.tokenizer);
  require_tokenizer_of_model(config);
}

std::optional<SharedFailure> export_model(const ModelExport& wanted, const RunConfig& config, RankRun& run, Ops& ops,
                                          Mesh& mesh, Mesh& host) {
  Comm& all = host.comm(step_group);
  const bool is_writer = all.rank() == 0;
  ModelWriter writer({.folder = wanted.folder,
                      .model = config.model,
                      .dtype = run.model().part().options.dtype,
                      .tokenizer = config.checkpoint.tokenizer,
                      .special_tokens = special_tokens,
                      .source = config.checkpoint.initial_load_path,
                      .training = {.seq_len = config.training.seq_len,
                                   .steps = wanted.step,
                                   .capacity_factor = capacity_factor_of(config)},
                      .text_only = config.checkpoint.text_only,
                      .adapter = adapter_of(config, wanted)});
  std::optional<SharedFailure> failure = agreed_failure(all, [&] {
    if (is_writer) writer.begin();
  });
  if (!failure) failure = agreed_failure(all, [&] { run.model().save(writer, ops, mesh); });
  if (!failure)
    failure = agreed_failure(all, [&] {
      if (is_writer) writer.finish();
    });
  return failure;
}

}  // namespace echelon
