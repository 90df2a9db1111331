// Templates and the names of tokens in a tokenizer's folder.
#include "data/chat/chat_encoder.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "data/files/mapped_file.h"
#include "data/tokenizer/tokenizer_files.h"

#include <filesystem>

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

/// As tokenizer_config.json has it: a string, or named templates of which one is "default". Empty if there is none.
std::string template_in(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return "";
  const nlohmann::json config = parse_json_object(MappedFile(file.string()).bytes(), file.string());
  const auto found = config.find("chat_template");
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const auto& item : *found)
    if (item.is_object() && item.value("name", nlohmann::json()) == "default" && item.contains("template") &&
        item.at("template").is_string())
      return item.at("template").get<std::string>();
  return "";
}

}  // namespace

std::string chat_template_of(const std::string& tokenizer_path, const std::string& given) {
  if (given == "chatml") return std::string(chatml);
  if (given == "llama3") return std::string(llama3);
  std::error_code error;
  require(given.empty() || fs::is_regular_file(given, error),
          "--chat-template={} is no file, and not chatml or llama3; did you mean {}?", given,
          closest_name(given, std::array<std::string_view, 2>{"chatml", "llama3"}));
  if (!given.empty()) return std::string(MappedFile(given).bytes());
  const fs::path folder = fs::path(tokenizer_path).parent_path(), file = folder / "chat_template.jinja";
  if (fs::is_regular_file(file, error)) return std::string(MappedFile(file.string()).bytes());
  std::string source = template_in(folder / "tokenizer_config.json");
  require(!source.empty(),
          "there is no chat_template.jinja next to {}, nor a chat_template in its tokenizer_config.json; name a file, "
          "chatml or llama3 with --chat-template",
          tokenizer_path);
  return source;
}

std::vector<std::pair<std::string, std::string>> named_tokens(const std::string& tokenizer_path) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    if (const auto token = named_token(tokenizer_path, name)) tokens.emplace_back(name, *token);
  return tokens;
}

}  // namespace echelon
