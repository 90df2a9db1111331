#include "spec/config/toml_file.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "base/text_file.h"
#include "spec/config/key_words.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

namespace echelon {
namespace {

/// The file of its folder with the closest name.
std::string hint_for_file(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == path.extension()) names.push_back(entry.path().filename().string());
  const std::vector<std::string_view> views(names.begin(), names.end());
  if (views.empty()) return "";
  return fmt::format(" (did you mean {}?)",
                     (path.parent_path() / closest_name(path.filename().string(), views)).string());
}

std::string config_text(const std::string& path) {
  require(!std::filesystem::is_directory(path), "the config file '{}' is a folder; check the path", path);
  std::optional<std::string> text = read_text_file(path);
  if (text) return *std::move(text);
  const int reason = access(path.c_str(), R_OK) == 0 ? 0 : errno;
  require(reason == 0 || reason == ENOENT, "the config file '{}' cannot be read: {}", path,
          std::generic_category().message(reason));
  throw Error(fmt::format("the config file '{}' cannot be read; check the path{}", path,
                          reason == ENOENT ? hint_for_file(path) : ""));
}

std::string with_underscores(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

class Flattener {
 public:
  explicit Flattener(const std::string& path) : path_(path) {}

  void add_table(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + (prefix.empty() ? "" : ".") + with_underscores(key.str());
      if (const toml::table* inner = node.as_table()) {
        if (prefix.empty()) check_section(name, origin(node));
        add_table(*inner, name);
      } else {
        require(!prefix.empty(), "{}: the key '{}' is outside of a section{}", origin(node), name,
                prefix.empty() ? hint_for_key(name) : "");
        settings_.push_back({.name = name, .value = value_of(name, node), .origin = origin(node)});
      }
    }
  }

  std::vector<Setting> take() { return std::move(settings_); }

 private:
  std::string origin(const toml::node& node) const { return fmt::format("{}:{}", path_, node.source().begin.line); }

  static void check_section(const std::string& name, const std::string& where) {
    const std::vector<std::string_view> sections = config_sections();
    const bool known = std::find(sections.begin(), sections.end(), name) != sections.end();
    if (known) return;
    const FieldWord* word = find_field_word(name);
    const std::string closest = similar(name, sections);
    throw Error(fmt::format("{}: there is no section [{}]{}", where, name,
                            word != nullptr   ? hint_for_key(name)
                            : closest.empty() ? fmt::format("; the sections are {}", fmt::join(sections, ", "))
                                              : fmt::format("; did you mean [{}]?", closest)));
  }

  ConfigValue value_of(const std::string& name, const toml::node& node) const {
    if (const auto* whole = node.as_integer()) return whole->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* text = node.as_string()) return text->get();
    const toml::array* array = node.as_array();
    require(array != nullptr, "{}: {} is a date or a time, which no key accepts", origin(node), name);
    const ConfigKey* key = find_config_key(name);
    const bool is_text = key != nullptr && takes_text(*key);
    require(!is_text, "{}: {} is a list, which is not supported here (use one of its elements)", origin(node), name);
    if (key != nullptr && takes_names(*key)) return list_of<std::string>(name, *array, "a string");
    return list_of<std::int64_t>(name, *array, "an integer");
  }

  template <class T>
  std::vector<T> list_of(const std::string& name, const toml::array& array, std::string_view what) const {
    std::vector<T> list;
    for (const toml::node& element : array) {
      require(element.is<T>(), "{}: {} is a list with an element that is not {}", origin(array), name, what);
      list.push_back(element.as<T>()->get());
    }
    return list;
  }

  std::string path_;
  std::vector<Setting> settings_;
};

}  // namespace

std::vector<Setting> read_toml(const std::string& path) { return parse_toml(config_text(path), path); }

std::vector<Setting> parse_toml(const std::string& text, const std::string& name) {
  try {
    Flattener flattener(name);
    flattener.add_table(toml::parse(text, name), "");
    return flattener.take();
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
}

}  // namespace echelon
