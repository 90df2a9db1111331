#include "checkpoint/hf/model_writer.h"

#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/hf/companion_files.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/folder_swap.h"
#include "checkpoint/hf/slice_io.h"
#include "files/file.h"

#include <utility>

namespace echelon {
namespace {

/// Of the source, or nothing.
WrappedWeights wrapped_by_source(ModelWriter::Options& options) {
  if (options.text_only) return {};
  try {
    return wrapped_weights_of(source_of(options.source, options.model.family));
  } catch (const Error&) {
    options.text_only = true;
  }
  return {};
}

/// As the modules of the source, which is their base.
void name_adapters(ModelWriter::Options& options) {
  const std::filesystem::path base =
      options.text_only ? std::filesystem::path() : source_of(options.source, options.model.family);
  if (!base.empty()) options.adapter->names = LanguageModelNames::of_modules(base);
}

FolderPlan plan_folder(const ModelWriter::Options& options, const WrappedWeights& wrapped) {
  std::vector<TensorPlan> tensors;
  const std::vector<NamedShape> written =
      options.adapter ? adapter_tensors(options.model, options.adapter->lora, options.adapter->names)
                      : file_tensors(options.model);
  for (const auto& [name, sizes] : written) {
    const auto own = options.dtypes.find(name);
    TensorPlan tensor{.name = wrapped.names.in_file(name),
                      .dtype = is_router_bias(name)          ? DType::float32
                               : own == options.dtypes.end() ? options.dtype
                                                             : own->second,
                      .shape = file_shape(sizes)};
    tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, entry] : wrapped.others) tensors.push_back({.name = name, .shape = {}, .like = entry.tensor});
  if (!options.adapter) return plan_safetensors(tensors, options.max_file_bytes);
  FolderPlan plan = plan_safetensors(tensors, INT64_MAX);
  plan.files.front().file_name = adapter_weights_name;
  return plan;
}

// "a/b/" and "a/b" are one folder, and names next to it are made by appending a suffix.
std::filesystem::path without_slash(const std::filesystem::path& folder) {
  const std::filesystem::path normal = folder.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// A tokenizer may have more tokens than the model, whose config.json must not name them.
SpecialTokens in_vocabulary(SpecialTokens tokens, std::int64_t vocab_size) {
  for (auto* token : {&tokens.bos, &tokens.eos})
    if (*token && **token >= vocab_size) token->reset();
  return tokens;
}

// Whether the tokenizer is another one than that of the source.
bool has_own_tokenizer(const ModelWriter::Options& options, const std::filesystem::path& source) {
  if (options.tokenizer.empty()) return false;
  if (source.empty() || !has_target(source / "tokenizer.json")) return true;
  return read_text(options.tokenizer) != read_text_in_folder(source, "tokenizer.json");
}

void write_texts(const ModelWriter::Options& options, const SpecialTokens& tokens,
                 const std::filesystem::path& folder) {
  const std::filesystem::path source = source_of(options.source, options.model.family);
  if (options.adapter) {
    write_adapter_config(folder, *options.adapter, options.model);
    if (has_own_tokenizer(options, source))
      write_tokenizer_files(options.tokenizer, folder, options.model.max_position_embeddings, tokens.eos.has_value());
    else if (!source.empty())
      copy_companions(source, folder);
    else if (is_folder(options.adapter->source))
      copy_companions(options.adapter->source, folder);
    return;
  }
  ConfigNotes notes = {
      .dtype = options.dtype, .training = options.training, .source = source, .text_only = options.text_only};
  if (!has_own_tokenizer(options, source)) {
    write_model_config(folder, options.model, notes);
    if (!source.empty()) copy_companions(source, folder, options.text_only);
    return;
  }
  notes.tokens = in_vocabulary(tokens, options.model.vocab_size);
  notes.replaces_tokens = true;
  write_model_config(folder, options.model, notes);
  write_tokenizer_files(options.tokenizer, folder, options.model.max_position_embeddings, tokens.eos.has_value());
}

}  // namespace

ModelWriter::ModelWriter(Options options) : options_(std::move(options)) {
  options_.folder = without_slash(options_.folder);
  temporary_ = temporary_name(options_.folder);
  if (options_.adapter)
    name_adapters(options_);
  else
    wrapped_ = wrapped_by_source(options_);
  parameters_ = options_.adapter ? placed_adapters(options_.model, options_.adapter->lora, options_.adapter->names)
                                 : placed_parameters(options_.model);
  plan_ = plan_folder(options_, wrapped_);
}

ModelWriter::~ModelWriter() {
  if (!owns_temporary_) return;
  try {
    delete_folder(temporary_);
  } catch (const Failure&) {
    return;  // another exception is being thrown already
  }
}

void ModelWriter::begin() {
  require_replaceable(options_.folder);
  require_sayable(options_.model);
  SpecialTokens tokens;
  if (!options_.tokenizer.empty() && options_.special_tokens) tokens = options_.special_tokens(options_.tokenizer);
  create_temporary(options_.folder);
  owns_temporary_ = true;
  for (const FilePlan& planned : plan_.files) {
    File file = File::create(temporary_ / planned.file_name);
    file.reserve(planned.num_bytes);
    file.write_at(0, planned.header.data(), static_cast<std::int64_t>(planned.header.size()));
    for (const auto& [name, entry] : wrapped_.others)
      if (const auto to = planned.tensors.find(name); to != planned.tensors.end())
        copy_tensor(wrapped_.folder, entry, file, to->second);
    file.close();
  }
  if (!plan_.index.empty()) write_text(temporary_ / index_file_name, plan_.index);
  write_texts(options_, tokens, temporary_);
}

void ModelWriter::write(const std::string& name, const TensorSlice& slice, DType dtype, const void* host) {
  const auto found = parameters_.find(name);
  require(found != parameters_.end() && found->second.sizes == slice.global_sizes(),
          "parameter '{}' {} is not one of the model that {} is written for", name, to_string(slice.global_sizes()),
          options_.folder.string());
  for (const auto& [tensor, part, first] : found->second.parts_of(slice)) {
    const std::string in_file = wrapped_.names.in_file(tensor);
    const FilePlan* planned = plan_.file_of(in_file);
    File file = File::open_to_write(temporary_ / planned->file_name);
    num_written_ += write_slice(file, planned->tensors.at(in_file), found->second.place, part, dtype,
                                static_cast<const std::byte*>(host) + first * size_of(dtype));
    file.close();
  }
  if (options_.adapter && name == tied_weight && options_.model.tie_word_embeddings)
    write(std::string(head_weight), slice, dtype, host);
}

void ModelWriter::write_router_bias(const std::vector<float>& biases) {
  std::int64_t num_needed = 0;
  for (const NamedShape& bias : router_biases(options_.model)) num_needed += bias.sizes[0];
  if (std::ssize(biases) != num_needed)
    throw Failure(fmt::format("the model has {} biases of choices, but {} are given", num_needed, biases.size()));
  const float* next = biases.data();
  for (const NamedShape& bias : router_biases(options_.model)) {
    write(bias.name, TensorSlice(bias.sizes), DType::float32, next);
    next += bias.sizes[0];
  }
}

void ModelWriter::finish() {
  for (const FilePlan& planned : plan_.files) {
    File file = File::open_to_write(temporary_ / planned.file_name);
    file.sync();
    file.close();
  }
  swap_in(options_.folder);
  owns_temporary_ = false;
}

}  // namespace echelon
