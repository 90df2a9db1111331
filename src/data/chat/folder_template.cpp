// Templates and the names of tokens in a tokenizer's folder.
#include "data/chat/chat_encoder.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text/utf8.h"
#include "data/files/mapped_file.h"
#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace echelon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view chatml = R"({% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
)";
constexpr std::string_view llama3 = R"({{ '<|begin_of_text|>' }}{% for message in messages %}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
)";

constexpr std::string_view default_name = "default", tool_use_name = "tool_use";
using Named = std::map<std::string, std::string, std::less<>>;

std::string template_in(const fs::path& file) {
  std::string source(MappedFile(file.string()).bytes());
  const std::size_t valid = valid_utf8_prefix(source);
  require(valid == source.size(), "{} is not UTF-8: byte {} is 0x{:02x}", file.string(), valid,
          static_cast<std::uint8_t>(source[std::min(valid, source.size() - 1)]));
  return source;
}

Named in_files(const fs::path& folder) {
  std::error_code error;
  Named named;
  if (fs::is_regular_file(folder / "chat_template.jinja", error))
    named.emplace(default_name, template_in(folder / "chat_template.jinja"));
  const fs::path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
  if (fs::is_regular_file(tool_use, error)) named.emplace(tool_use_name, template_in(tool_use));
  return named;
}

/// A string, or a list of named ones.
Named in_config(const fs::path& file) {
  std::error_code error;
  Named named;
  if (!fs::is_regular_file(file, error)) return named;
  const nlohmann::json config = parse_json_object(MappedFile(file.string()).bytes(), file.string());
  const auto found = config.find("chat_template");
  if (found == config.end()) return named;
  if (found->is_string()) named.emplace(default_name, found->get<std::string>());
  if (!found->is_array()) return named;
  for (const auto& item : *found) {
    const auto text = [&](const char* key) {
      return item.is_object() && item.contains(key) && item.at(key).is_string() ? item.at(key).get<std::string>() : "";
    };
    named.insert_or_assign(text("name"), text("template"));
  }
  return named;
}

}  // namespace

ChatTemplates chat_templates_of(const std::string& tokenizer_path, const std::string& given) {
  if (given == "chatml") return {std::string(chatml)};
  if (given == "llama3") return {std::string(llama3)};
  std::error_code error;
  require(given.empty() || fs::is_regular_file(given, error),
          "--chat-template={} is no file, and not chatml or llama3; did you mean {}?", given,
          closest_name(given, std::array<std::string_view, 2>{"chatml", "llama3"}));
  if (!given.empty()) return {template_in(given)};
  const fs::path folder = fs::path(tokenizer_path).parent_path();
  Named named = in_files(folder);
  if (!named.contains(default_name)) named.merge(in_config(folder / "tokenizer_config.json"));
  ChatTemplates templates = {named[std::string(default_name)], named[std::string(tool_use_name)]};
  require(!templates.main.empty(),
          "there is no chat_template.jinja next to {}, nor a chat_template in its tokenizer_config.json; name a file, "
          "chatml or llama3 with --chat-template",
          tokenizer_path);
  return templates;
}

std::vector<std::pair<std::string, std::string>> named_tokens(const std::string& tokenizer_path) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto token = named_token(tokenizer_path, name)) tokens.emplace_back(name, *token);
  return tokens;
}

}  // namespace echelon
