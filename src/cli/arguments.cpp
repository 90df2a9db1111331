#include "cli/arguments.h"

#include "base/error.h"

#include <CLI/CLI.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>

namespace echelon {
namespace {

template <class T>
bool is_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// Of an option that takes a number; 1e6 is a whole number, as in a config. CLI11 would clamp larger integers.
std::string checked_value(const CLI::Option& option, std::string_view name, const std::string& text) {
  const std::string type = option.get_type_name();
  const std::string example = option.get_default_str().empty() ? "" : ", such as " + option.get_default_str();
  std::int64_t whole = 0;
  double number = 0;
  if (type.starts_with("FLOAT"))
    require(is_number(text, number) && !std::isnan(number), "{}={} is not a number{}", name, text, example);
  if (!type.starts_with("INT") || is_number(text, whole)) return text;
  constexpr double most = 9007199254740992;  // up to which all whole numbers are doubles
  require(is_number(text, number) && std::trunc(number) == number && std::abs(number) <= most,
          "{}={} is not an integer{}", name, text, example);
  return std::to_string(static_cast<std::int64_t>(number));
}

// An option without its value is usually an unset shell variable. Ignoring the option would be surprising.
void check_text(std::string_view name, std::string_view text) {
  constexpr std::string_view may_be_empty = "--prompt";
  require(!text.empty() || name == may_be_empty, "{} is empty; write {}=VALUE or omit it", name, name);
}

/// "--seq-len=32", or the name of a flag.
std::string given(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  const bool has_value = option != nullptr && option->get_items_expected_max() > 0 && !option->results().empty();
  return has_value ? fmt::format("{}={}", name, fmt::join(option->results(), ",")) : name;
}

struct NamedFile {
  std::string option;  // that writes it; empty: it is read
  std::string path;
};

std::vector<NamedFile> named_files(const CLI::App& command, const std::vector<std::string>& config_arguments) {
  constexpr std::string_view writing[] = {"--html", "--svg", "--trace", "--output", "--machine-output"};
  std::vector<NamedFile> files;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool writes = std::find(std::begin(writing), std::end(writing), name) != std::end(writing);
    for (const std::string& value : option->results()) files.push_back({writes ? name : "", value});
  }
  for (const std::string& argument : config_arguments)
    files.push_back({"", argument.starts_with("--") ? argument.substr(argument.find('=') + 1) : argument});
  return files;
}

/// Whether what is written would replace the other file, under whatever name.
bool replaces(const NamedFile& written, const NamedFile& other) {
  std::error_code ignored;
  if (other.option.empty() && !std::filesystem::is_regular_file(other.path, ignored)) return false;
  if (std::filesystem::equivalent(written.path, other.path, ignored)) return true;
  const auto whole = [&](const std::string& path) { return std::filesystem::weakly_canonical(path, ignored); };
  return whole(written.path) == whole(other.path);
}

/// `--model=a b` has two models where the argument without a name is the same option.
void require_named_once(const CLI::Option& option, std::string_view name, const std::string& other) {
  require(other.empty() || !option.get_positional() || option.get_expected_max() > 1,
          "'{}' is a second value of {}; give it once", other, name);
}

}  // namespace

std::vector<std::string> with_values_apart(const CLI::App& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> apart;
  std::vector<const CLI::Option*> given;
  std::string positional;  // the first argument without a name, after the command's own
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const CLI::Option* option = name.starts_with("--") ? command.get_option_no_throw(name) : nullptr;
    apart.push_back(argument);
    if (i > 0 && !argument.starts_with('-') && positional.empty()) positional = argument;
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    const bool has_value =
        equals != std::string::npos || (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"));
    require(has_value, "{} has no value; write {}=VALUE", name, name);
    apart.back() = name;
    apart.push_back(equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i]);
    apart.back() = checked_value(*option, name, apart.back());
    check_text(name, apart.back());
    const bool is_given_again = std::find(given.begin(), given.end(), option) != given.end();
    require(!is_given_again || option->get_expected_max() > 1, "{}={} is a second value of {}; give it once", name,
            apart.back(), name);
    given.push_back(option);
  }
  for (const CLI::Option* option : given) require_named_once(*option, "--" + option->get_lnames().front(), positional);
  return apart;
}

std::string with_values(const CLI::App& command, const CLI::ExcludesError& error) {
  constexpr std::string_view verb = " excludes ";
  const std::string sentence = error.what();
  const std::size_t at = sentence.find(verb);
  if (at == std::string::npos) return sentence;
  return fmt::format("{}{}{}; omit one of them", given(command, sentence.substr(0, at)), verb,
                     given(command, sentence.substr(at + verb.size())));
}

void require_files_apart(const CLI::App& command, const std::vector<std::string>& config_arguments) {
  const std::vector<NamedFile> files = named_files(command, config_arguments);
  for (const NamedFile& written : files)
    for (const NamedFile& other : files) {
      if (written.option.empty() || written.path.empty() || &written == &other) continue;
      const std::string user = other.option.empty() ? fmt::format("'{}', which is read", other.path) : other.option;
      require(!replaces(written, other), "{}={} is also the file of {}; use different files", written.option,
              written.path, user);
    }
}

CLI::Validator in_range(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double number = 0;
    if (!is_number(text, number) || std::isnan(number)) return text + " is not a number";
    if (number < least) return fmt::format("{} is below {} (use {})", text, least, least);
    if (number > most) return fmt::format("{} is above {} (use {})", text, most, most);
    return {};
  };
  return {check, fmt::format("in [{} - {}]", least, most)};
}

}  // namespace echelon
