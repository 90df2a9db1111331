// Typed access to the fields of a config.json; every error names the file, the key, the value and what is expected.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// The JSON of a config.json: what Python writes for values that are not finite, which JSON lacks, in the form that
/// transformers 5 gives them.
[[nodiscard]] std::string without_python_numbers(std::string_view text);

class ConfigFields {
 public:
  /// Throws Error if the file is missing or not a JSON object.
  explicit ConfigFields(const std::filesystem::path& path);
  /// Fields that are said to come from `path`.
  ConfigFields(const std::filesystem::path& path, nlohmann::json fields);

  /// Absent and null are equivalent.
  [[nodiscard]] bool has(std::string_view key) const;
  /// Where a default would replace an absent value, but not null.
  [[nodiscard]] bool is_null(std::string_view key) const;
  [[nodiscard]] bool is_text(std::string_view key) const;

  /// Absent, null, false, an empty list or object, or this number.
  [[nodiscard]] bool is_neutral(std::string_view key, double neutral) const;

  /// Whole numbers from `least` to `max`; without a `fallback` the key is required.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t max, std::optional<std::int64_t> fallback = {},
                                     std::int64_t least = 1) const;
  [[nodiscard]] double number(std::string_view key, std::optional<double> fallback = {}) const;
  [[nodiscard]] bool boolean(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;      // empty if absent
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const;         // empty if absent
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;  // empty if absent
  /// The object of that key; errors name its keys with this prefix. It has no fields if the key is absent.
  [[nodiscard]] ConfigFields object(std::string_view key) const;

  /// Replaces a field.
  void set(std::string_view key, const nlohmann::json& value);

  /// Throws Error unless the text is one of `supported`, and suggests one.
  void require_one_of(std::string_view key, std::string_view value,
                      const std::vector<std::string_view>& supported) const;
  /// Throws Error unless the flag is `supported` or absent.
  void require_flag(std::string_view key, bool supported) const;
  /// The sentence that the value of the key is `what`.
  [[nodiscard]] std::string refusal(std::string_view key, std::string_view what) const;
  /// Throws it as Error.
  [[noreturn]] void refuse(std::string_view key, std::string_view what) const;

 private:
  ConfigFields(std::string path, std::string prefix, nlohmann::json fields);
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;  // nullptr if absent or null
  [[noreturn]] void refuse_missing(std::string_view key) const;

  std::string path_;
  std::string prefix_;  // "rope_scaling."
  nlohmann::json fields_;
};

}  // namespace echelon
