#include "spec/config/key_words.h"

#include "base/text/similar.h"
#include "spec/config/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace echelon {
namespace {

constexpr std::string_view trackers = "experiment trackers are not supported yet; output.dir has metrics.jsonl";
constexpr std::string_view dropout = "dropout is not supported";
constexpr std::string_view local_steps = "local steps are not supported; replicas sum gradients in every step";
constexpr std::string_view blends = "blends of data sets are not supported; echelon prepare joins its inputs";

// clang-format off
constexpr FieldWord known_words[] = {
    // layout
    {"tp", "parallelism.tensor_parallel_degree", ""},
    {"tp_size", "parallelism.tensor_parallel_degree", ""},
    {"tp_degree", "parallelism.tensor_parallel_degree", ""},
    {"tensor_parallel", "parallelism.tensor_parallel_degree", ""},
    {"tensor_parallel_size", "parallelism.tensor_parallel_degree", ""},
    {"tensor_model_parallel_size", "parallelism.tensor_parallel_degree", ""},
    {"sp", "parallelism.sequence_parallel", ""},
    {"pp", "parallelism.pipeline_parallel_degree", ""},
    {"pp_size", "parallelism.pipeline_parallel_degree", ""},
    {"pp_degree", "parallelism.pipeline_parallel_degree", ""},
    {"pipeline_parallel", "parallelism.pipeline_parallel_degree", ""},
    {"pipeline_parallel_size", "parallelism.pipeline_parallel_degree", ""},
    {"pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree", ""},
    {"pp_schedule", "parallelism.pipeline_parallel_schedule", ""},
    {"pipeline_schedule", "parallelism.pipeline_parallel_schedule", ""},
    {"vpp", "parallelism.virtual_stages", ""},
    {"dp", "parallelism.data_parallel_shard_degree", ""},
    {"dp_size", "parallelism.data_parallel_shard_degree", ""},
    {"data_parallel", "parallelism.data_parallel_shard_degree", ""},
    {"data_parallel_size", "parallelism.data_parallel_shard_degree", ""},
    {"data_parallel_degree", "parallelism.data_parallel_shard_degree", ""},
    {"dp_shard", "parallelism.data_parallel_shard_degree", ""},
    {"fsdp", "parallelism.zero_level=3", ""},
    {"dp_replicate", "parallelism.data_parallel_replicate_degree", ""},
    {"ddp", "parallelism.data_parallel_replicate_degree", ""},
    {"zero", "parallelism.zero_level", ""},
    {"zero_stage", "parallelism.zero_level", ""},
    {"cp", "parallelism.context_parallel_degree", ""},
    {"context_parallel_size", "parallelism.context_parallel_degree", ""},
    {"ep", "parallelism.expert_parallel_degree", ""},
    {"expert_model_parallel_size", "parallelism.expert_parallel_degree", ""},
    {"num_gpus", "gpus", ""},
    {"n_gpus", "gpus", ""},
    {"world_size", "gpus", ""},
    {"num_devices", "gpus", ""},
    // data
    {"eod_mask", "data.eod_mask_loss", ""},
    {"pack_sequences", "data.packing=best_fit", ""},
    {"sample_packing", "data.packing=best_fit", ""},
    // batch and length
    {"batch_size", "training.global_batch_size", ""},
    {"train_batch_size", "training.global_batch_size", ""},
    {"gbs", "training.global_batch_size", ""},
    {"global_bs", "training.global_batch_size", ""},
    {"per_device_train_batch_size", "training.micro_batch_size", ""},
    {"local_batch_size", "training.micro_batch_size", ""},
    {"microbatch_size", "training.micro_batch_size", ""},
    {"mbs", "training.micro_batch_size", ""},
    {"gradient_accumulation_steps", "training.micro_batch_size", ""},
    {"grad_accum", "training.micro_batch_size", ""},
    {"seq_length", "training.seq_len", ""},
    {"sequence_length", "training.seq_len", ""},
    {"max_seq_len", "training.seq_len", ""},
    {"max_seq_length", "training.seq_len", ""},
    {"max_length", "training.seq_len", ""},
    {"block_size", "training.seq_len", ""},
    {"context_length", "training.seq_len", ""},
    {"epochs", "training.steps", ""},
    {"num_epochs", "training.steps", ""},
    {"num_train_epochs", "training.steps", ""},
    {"max_steps", "training.steps", ""},
    {"num_steps", "training.steps", ""},
    {"iters", "training.steps", ""},
    {"max_iters", "training.steps", ""},
    {"train_iters", "training.steps", ""},
    {"num_iterations", "training.steps", ""},
    // data types and memory
    {"bf16", "training.dtype=bfloat16", ""},
    {"bfloat16", "training.dtype=bfloat16", ""},
    {"fp16", "training.dtype=float16", ""},
    {"float16", "training.dtype=float16", ""},
    {"half", "training.dtype=float16", ""},
    {"fp32", "training.dtype=float32", ""},
    {"fp8", "training.linear_dtype=float8", ""},
    {"precision", "training.dtype", ""},
    {"mixed_precision", "training.dtype", ""},
    {"amp", "training.dtype", ""},
    {"torch_dtype", "training.dtype", ""},
    {"gradient_checkpointing", "training.recompute", ""},
    {"activation_checkpointing", "training.recompute", ""},
    {"activation_checkpoint", "training.recompute", ""},
    {"recompute_granularity", "training.recompute", ""},
    {"use_distributed_optimizer", "parallelism.zero_level", ""},
    // optimizer
    {"learning_rate", "optimizer.lr", ""},
    {"adam_beta1", "optimizer.beta1", ""},
    {"adam_beta2", "optimizer.beta2", ""},
    {"adam_epsilon", "optimizer.eps", ""},
    {"epsilon", "optimizer.eps", ""},
    {"wd", "optimizer.weight_decay", ""},
    {"optim", "optimizer.name", ""},
    {"warmup", "lr_scheduler.warmup_steps", ""},
    {"warmup_iters", "lr_scheduler.warmup_steps", ""},
    {"lr_warmup_iters", "lr_scheduler.warmup_steps", ""},
    {"lr_scheduler_type", "lr_scheduler.decay", ""},
    {"lr_decay_style", "lr_scheduler.decay", ""},
    {"min_lr", "lr_scheduler.min_lr_factor", ""},
    {"lr_min", "lr_scheduler.min_lr_factor", ""},
    {"grad_clip", "training.max_norm", ""},
    {"clip_grad", "training.max_norm", ""},
    {"max_grad_norm", "training.max_norm", ""},
    {"gradient_clipping", "training.max_norm", ""},
    {"loss_scale", "grad_scaler.init_scale", ""},
    // model, data and files
    {"model_name", "model.preset", ""},
    {"flavor", "model.preset", ""},
    {"model_name_or_path", "model.path", ""},
    {"n_layer", "model.num_hidden_layers", ""},
    {"num_layers", "model.num_hidden_layers", ""},
    {"n_head", "model.num_attention_heads", ""},
    {"num_heads", "model.num_attention_heads", ""},
    {"n_embd", "model.hidden_size", ""},
    {"d_model", "model.hidden_size", ""},
    {"ffn_hidden_size", "model.intermediate_size", ""},
    {"n_positions", "model.max_position_embeddings", ""},
    {"dataset", "data.path", ""},
    {"data_path", "data.path", ""},
    {"train_data", "data.path", ""},
    {"train_file", "data.path", ""},
    {"valid_data", "data.validation_path", ""},
    {"validation_file", "data.validation_path", ""},
    {"tokenizer_path", "checkpoint.tokenizer", ""},
    {"output_dir", "output.dir", ""},
    {"out_dir", "output.dir", ""},
    {"dump_folder", "output.dir", ""},
    {"save_dir", "output.dir", ""},
    {"save_steps", "checkpoint.interval", ""},
    {"save_interval", "checkpoint.interval", ""},
    {"save_total_limit", "checkpoint.keep_latest_k", ""},
    {"resume", "checkpoint.load", ""},
    {"resume_from", "checkpoint.load", ""},
    {"resume_from_checkpoint", "checkpoint.load", ""},
    {"auto_resume", "checkpoint.load", ""},
    {"load_step", "checkpoint.load", ""},
    {"init_from", "checkpoint.initial_load_path", ""},
    {"load_from", "checkpoint.initial_load_path", ""},
    {"eval_steps", "training.eval_interval", ""},
    {"eval_iters", "training.eval_batches", ""},
    {"logging_steps", "metrics.log_freq", ""},
    {"log_interval", "metrics.log_freq", ""},
    {"profile", "metrics.trace", ""},
    {"profiling", "metrics.trace", ""},
    {"threads", "training.num_threads", ""},
    {"timeout", "comm.timeout_seconds", ""},
    {"lora_rank", "lora.rank", ""},
    {"lora_r", "lora.rank", ""},
    {"lora_alpha", "lora.alpha", ""},
    {"peft", "lora.rank", ""},
    // not supported
    {"wandb", "", trackers},
    {"report_to", "", trackers},
    {"dropout", "", dropout},
    {"hidden_dropout", "", dropout},
    {"attention_dropout", "", dropout},
    {"diloco", "", local_steps},
    {"local_sgd", "", local_steps},
    {"data_blend", "", blends},
    {"blend", "", blends},
    {"data_weights", "", blends},
};
// clang-format on

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// "--Tensor-Parallel-Size=2" as "tensor_parallel_size".
std::string plain(std::string_view name) {
  name = name.substr(0, name.find('='));
  name.remove_prefix(std::min(name.size(), name.find_first_not_of('-')));
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::span<const FieldWord> field_words() { return known_words; }

const FieldWord* find_field_word(std::string_view name) {
  const std::string text = plain(name);
  const auto* const found = std::find_if(std::begin(known_words), std::end(known_words),
                                         [&](const FieldWord& w) { return w.word == last_part(text); });
  return found == std::end(known_words) ? nullptr : found;
}

std::string suggested_key(std::string_view name) {
  const FieldWord* word = find_field_word(name);
  if (word != nullptr && word->meaning.find('.') != std::string_view::npos) return std::string(word->meaning);
  const std::string text = plain(name);
  for (const ConfigKey& key : config_keys())
    if (is_there(key) && last_part(key.name) == last_part(text)) return std::string(key.name);
  const std::string closest = closest_config_key(text);
  return is_similar(last_part(text), last_part(closest)) ? closest : "";
}

std::string hint_for_key(std::string_view name) {
  const FieldWord* word = find_field_word(name);
  if (word != nullptr && word->meaning.empty()) return fmt::format("; {}", word->not_here);
  const std::string key = suggested_key(name);
  return key.empty() ? "; echelon train --help lists the keys" : fmt::format("; did you mean {}?", key);
}

}  // namespace echelon
