// echelon convert: a checkpoint or a Hugging Face folder to a Hugging Face folder.
#include "checkpoint/convert_model.h"

#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/hf_reader.h"
#include "checkpoint/model_reader.h"
#include "cli/command.h"
#include "data/tokenizer/embeddings.h"
#include "data/tokenizer/tokenizer_files.h"
#include "spec/config/run_formats.h"
#include "train/data/special_tokens.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <string>

namespace echelon {
namespace {

struct ConvertArguments {
  std::string source, folder, dtype, merged, upcycled;
  bool text_only = false;
};

/// The tokenizer goes along.
void require_tokenizer_of_model(const std::string& source) {
  const std::filesystem::path tokenizer = tokenizer_file_in(source);
  if (!std::filesystem::exists(tokenizer)) return;
  require_embeddings(tokenizer.string(), read_model_spec(source).vocab_size, tokenizer.string(),
                     "replace it with the tokenizer of the model, or remove it");
}

ExitStatus run_conversion(const ConvertArguments& arguments) {
  require(!arguments.source.empty() && !arguments.folder.empty(), "a folder's name is empty; convert needs two");
  ConvertOptions options = {
      .text_only = arguments.text_only, .merged = arguments.merged, .special_tokens = special_tokens};
  if (!arguments.dtype.empty()) options.dtype = parse_training_dtype("--dtype", arguments.dtype);
  require(arguments.merged.empty() || is_adapter_folder(arguments.merged) || is_checkpoint(arguments.merged),
          "--merge={} has no adapters: use PEFT's folder, or a step's folder of a run with [lora]", arguments.merged);
  if (!arguments.upcycled.empty()) options.upcycling = parse_upcycling(arguments.upcycled);
  require_tokenizer_of_model(arguments.source);
  convert_model(arguments.source, arguments.folder, options);
  const bool is_model = std::filesystem::exists(std::filesystem::path(arguments.source) / "config.json") &&
                        !is_adapter_folder(arguments.source);
  fmt::print("model: {}\n", arguments.folder);
  if (!is_model) return ExitStatus::success;
  const std::string note = HuggingFaceReader(arguments.source).note();
  if (!note.empty()) fmt::print("{}\n", note);
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_convert(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<ConvertArguments>();  // CLI11's options write to what the action reads
  app.add_option("source", arguments->source,
                 "a step's folder, such as out/checkpoint/step-100, or a Hugging Face or PEFT folder")
      ->required();
  app.add_option("model", arguments->folder, "the Hugging Face folder that is made")->required();
  app.add_option("--dtype", arguments->dtype, "of the weights; else that of the folder or training.dtype of the run");
  app.add_flag("--text-only", arguments->text_only, "of a model of images and text, the language model alone");
  app.add_option("--merge", arguments->merged,
                 "adapters that are added: PEFT's folder, or a step's folder of a run with [lora]");
  app.add_option("--upcycle", arguments->upcycled,
                 "8,2: of a dense model a mixture of 8 copies of its MLP, of which a token has 2");
  return [arguments] { return run_conversion(*arguments); };
}

}  // namespace echelon
