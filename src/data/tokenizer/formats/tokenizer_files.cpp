#include "data/tokenizer/tokenizer_files.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "data/files/mapped_file.h"
#include "files/file.h"
#include "files/folder_links.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

namespace echelon {
namespace {

namespace fs = std::filesystem;

#define ECHELON_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define ECHELON_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr std::string_view three_digits = ECHELON_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" ECHELON_REST;
constexpr std::string_view one_digit = ECHELON_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" ECHELON_REST;
constexpr std::string_view two_cases =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" ECHELON_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" ECHELON_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef ECHELON_CONTRACTIONS
#undef ECHELON_REST

// The names that files of ranks have, too: r50k_base.tiktoken.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> patterns = {{{"gpt2", gpt2_pattern},
                                                                                    {"r50k", gpt2_pattern},
                                                                                    {"p50k", gpt2_pattern},
                                                                                    {"llama3", three_digits},
                                                                                    {"cl100k", three_digits},
                                                                                    {"o200k", two_cases},
                                                                                    {"qwen", one_digit}}};

bool are_ranks(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  return line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
}

std::string pattern_of_file(const std::string& path) {
  const std::string file = fs::path(path).filename().string();
  for (const auto& [name, pattern] : patterns) {
    if (file.find(name) != std::string::npos) return std::string(name);
  }
  return "";
}

}  // namespace

fs::path tokenizer_file_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"})
    if (has_target(path_in_folder(folder, name))) return folder / name;  // the link itself, which has the name
  return folder / "tokenizer.json";
}

std::string_view named_pattern(const std::string& name) {
  std::string all;
  for (const auto& [known, pattern] : patterns) {
    if (known == name) return pattern;
    all += (all.empty() ? "" : ", ") + std::string(known);
  }
  throw Error(fmt::format("'{}' is not the name of a pattern; the names are {}", name, all));
}

TokenizerSpec read_tokenizer(const std::string& path, const std::string& pattern) {
  std::error_code error;
  require(!fs::is_directory(path, error), "'{}' is a folder, not a tokenizer's file (use '{}')", path,
          tokenizer_file_in(path).string());
  const MappedFile file(path);
  const fs::path name = fs::path(path).filename();
  const bool is_model = name.extension() == ".model";
  const bool has_ranks = name.extension() == ".tiktoken" || (is_model && are_ranks(file.bytes()));
  require(pattern.empty() || has_ranks, "--pattern={} is for tiktoken's files, which {} is not; leave it out", pattern,
          path);
  if (name == "vocab.json") {
    const MappedFile merges((fs::path(path).parent_path() / "merges.txt").string());
    return parse_vocab_and_merges(file.bytes(), merges.bytes(), path);
  }
  if (has_ranks) {
    const std::string chosen = pattern.empty() ? pattern_of_file(path) : pattern;
    require(!chosen.empty(), "{} has ranks without a pattern, and its name does not say which (use --pattern llama3)",
            path);
    return parse_ranks(file.bytes(), std::string(named_pattern(chosen)), path);
  }
  if (is_model) return parse_sentencepiece(file.bytes(), path);
  return parse_tokenizer_json(file.bytes(), path);
}

std::optional<std::string> named_token(const std::string& path, const char* key) {
  for (const char* sibling : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path file = fs::path(path).parent_path() / sibling;
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    const nlohmann::json json = parse_json_object(MappedFile(file.string()).bytes(), file.string());
    const auto token = json.find(key);
    if (token == json.end()) continue;
    if (token->is_string()) return token->get<std::string>();
    if (token->is_object() && token->contains("content") && token->at("content").is_string())
      return token->at("content").get<std::string>();
  }
  return std::nullopt;
}

std::optional<std::int64_t> model_vocab_size(const std::string& path) {
  const fs::path file = fs::path(path).parent_path() / "config.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  const nlohmann::json config = parse_json_object(MappedFile(file.string()).bytes(), file.string());
  for (const nlohmann::json& model : {config, config.value("text_config", nlohmann::json())}) {
    const auto size = model.find("vocab_size");  // the end if the model is no object
    if (size != model.end() && size->is_number_unsigned()) return size->get<std::int64_t>();
  }
  return std::nullopt;
}

}  // namespace echelon
