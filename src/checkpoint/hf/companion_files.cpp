#include "checkpoint/hf/companion_files.h"

#include "files/file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace echelon {
namespace {

constexpr std::array<std::string_view, 5> next_to_tokenizer = {"tokenizer_config.json", "special_tokens_map.json",
                                                               "added_tokens.json", "chat_template.jinja",
                                                               "chat_template.json"};
constexpr std::array<std::string_view, 8> others = {
    "tokenizer.json",         "tokenizer.model",          "vocab.json",           "merges.txt", "vocab.txt",
    "generation_config.json", "preprocessor_config.json", "processor_config.json"};

void copy_templates(const std::filesystem::path& source, const std::filesystem::path& folder) {
  if (kind_of(source / more_templates) != NameKind::folder) return;
  make_folder(folder / more_templates);
  for (const std::string& name : list_folder(source / more_templates))
    if (name.ends_with(".jinja"))
      write_text(folder / more_templates / name, read_text_in_folder(source / more_templates, name));
}

void copy_file(const std::filesystem::path& source, const std::filesystem::path& folder, std::string_view name) {
  write_text(folder / name, read_text_in_folder(source, name));
}

}  // namespace

bool is_companion(std::string_view name) {
  return std::ranges::find(next_to_tokenizer, name) != next_to_tokenizer.end() ||
         std::ranges::find(others, name) != others.end() || name.ends_with(".tiktoken") || name == more_templates;
}

void copy_companions(const std::filesystem::path& source, const std::filesystem::path& folder, bool text_only) {
  copy_templates(source, folder);
  for (const std::string& name : list_folder(source))
    if (is_companion(name) && name != more_templates && !(text_only && name.ends_with("processor_config.json")))
      copy_file(source, folder, name);
}

void write_tokenizer_files(const std::filesystem::path& tokenizer, const std::filesystem::path& folder,
                           std::int64_t max_tokens, bool has_separator) {
  write_text(folder / "tokenizer.json", read_text(tokenizer));
  const std::filesystem::path source = tokenizer.parent_path().empty() ? "." : tokenizer.parent_path();
  if (has_target(source / next_to_tokenizer[0]) || has_target(source / next_to_tokenizer[1])) {
    for (const std::string_view name : next_to_tokenizer)
      if (has_target(source / name)) copy_file(source, folder, name);
    copy_templates(source, folder);
    return;
  }
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"clean_up_tokenization_spaces", false},
                                   {"model_max_length", max_tokens}};
  if (has_separator)
    for (const char* key : {"bos_token", "eos_token", "unk_token"}) config[key] = "<|endoftext|>";
  write_text(folder / next_to_tokenizer[0], config.dump(2) + "\n");
}

}  // namespace echelon
