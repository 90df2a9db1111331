#include "base/bounded_json.h"
#include "base/error.h"
#include "data/text_field.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

#include <optional>
#include <stdexcept>

namespace echelon::fuzz {
namespace {

/// As the values of the whole line say it.
std::optional<std::string> expected(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const bool is_there = json.is_object() && json.contains("text") && json.at("text").is_string();
  return is_there ? std::optional(json.at("text").get<std::string>()) : std::nullopt;
}

}  // namespace

int text_line(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = text_of(data, size);
  std::optional<std::string> found;
  std::string fault;
  {
    const HeapBound bound(size);
    try {
      found = read_text_field(line, "text");
    } catch (const Error& error) {
      fault = error.what();
    }
  }
  if (found != expected(line)) throw std::logic_error("a line has another text");
  if (json_fault(line).empty() != nlohmann::json::accept(line)) throw std::logic_error("a fault that is none");
  if (!found && (fault.empty() || fault.size() > 2000)) throw std::logic_error("a line is refused without a reason");
  return 0;
}

}  // namespace echelon::fuzz
