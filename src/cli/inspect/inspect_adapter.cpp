#include "cli/inspect/inspect_adapter.h"

#include "base/shown_json.h"
#include "base/text/printable.h"
#include "checkpoint/hf/adapter/adapter_fields.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "cli/inspect/print_json.h"
#include "cli/inspect/print_tensors.h"

#include <cstdio>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct AdapterFolder {
  nlohmann::json fields;  // of adapter_config.json
  std::vector<ListedTensor> tensors;
  std::string unread_base = {};  // why they are not compared with it; empty: they are
  std::string fault = {};        // what does not fit; empty: all does

  [[nodiscard]] nlohmann::json field(const char* key) const { return fields.value(key, nlohmann::json()); }
  /// Names of a list, or what is in its place.
  [[nodiscard]] std::string text(const char* key) const {
    const auto one = [](const nlohmann::json& value) {
      return value.is_string() ? value.get<std::string>() : shown_json(value);
    };
    const nlohmann::json value = field(key);
    if (!value.is_array()) return printable(one(value), 200);
    std::string names;
    for (const nlohmann::json& name : value) names += (names.empty() ? "" : ", ") + one(name);
    return printable(names);
  }
};

AdapterFolder read_adapters(const fs::path& folder) {
  AdapterFolder adapters = {.fields = read_adapter_json(folder), .tensors = list_adapter_tensors(folder)};
  fs::path base;
  try {
    base = base_of_adapters(folder);
  } catch (const Error& error) {
    adapters.unread_base = error.what();
    return adapters;
  }
  try {
    const AdapterReader reader(folder, read_model_spec(base));
  } catch (const Error& error) {
    adapters.fault = error.what();
  }
  return adapters;
}

void print(const AdapterFolder& adapters) {
  print_tensors("adapters", adapters.tensors);
  fmt::print("LoRA of rank {} and alpha {} in {}\n", adapters.text("r"), adapters.text("lora_alpha"),
             adapters.text("target_modules"));
  if (!adapters.field("modules_to_save").empty()) fmt::print("trained whole: {}\n", adapters.text("modules_to_save"));
  fmt::print("base: {}\n", adapters.text("base_model_name_or_path"));
  if (!adapters.unread_base.empty())
    fmt::print("not compared with the base: {}\n", printable(adapters.unread_base));
  else if (!adapters.fault.empty())
    fmt::print("they do not fit the base: {}\n", printable(adapters.fault));
  else
    fmt::print("they fit the base\n");
}

nlohmann::ordered_json to_json(const AdapterFolder& adapters) {
  nlohmann::ordered_json json = {{"base", adapters.field("base_model_name_or_path")},
                                 {"rank", adapters.field("r")},
                                 {"alpha", adapters.field("lora_alpha")},
                                 {"target_modules", adapters.field("target_modules")},
                                 {"modules_to_save", adapters.field("modules_to_save")},
                                 {"notes", nlohmann::json::array()},
                                 {"missing", nlohmann::json::array()}};
  if (!adapters.unread_base.empty()) json["notes"].push_back(adapters.unread_base);
  if (!adapters.fault.empty()) json["missing"].push_back(adapters.fault);
  json.update(tensors_json(adapters.tensors));
  return json;
}

}  // namespace

ExitStatus inspect_adapter(const fs::path& folder, bool json) {
  const AdapterFolder adapters = read_adapters(folder);
  json ? print_json(to_json(adapters)) : print(adapters);
  std::fflush(stdout);
  if (!adapters.fault.empty()) throw Error(adapters.fault);
  return ExitStatus::success;
}

}  // namespace echelon
