#include "checkpoint/hf/generation_config.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text/printable.h"
#include "files/file.h"

#include <nlohmann/json.hpp>

namespace echelon {

std::vector<std::int32_t> generation_ends(const std::filesystem::path& folder) {
  using nlohmann::json;
  constexpr std::string_view name = "generation_config.json";
  if (!has_target(folder / name)) return {};
  const json config = parse_json_object(read_text_in_folder(folder, name), (folder / name).string());
  const json found = config.value("eos_token_id", json());
  std::vector<std::int32_t> ends;
  for (const json& id : found.is_array() || found.is_null() ? found : json::array({found})) {
    require(id.is_number_integer() && id >= 0 && id <= INT32_MAX,
            "{}: eos_token_id has {}, which is no token; use its id, such as 0", (folder / name).string(),
            printable(id.dump(), 100));
    ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

}  // namespace echelon
