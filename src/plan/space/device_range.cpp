#include "plan/space/device_range.h"

#include "base/error.h"

#include <charconv>

namespace echelon {
namespace {

std::int64_t parse_devices(std::string_view number, std::string_view text) {
  std::int64_t devices = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), devices);
  require(error == std::errc() && end == number.data() + number.size(),
          "--gpus={} is not an integer or a range of them (examples: --gpus=8, --gpus=8..64)", text);
  require(devices >= 1, "--gpus={} is not a number of devices (use 1)", text);
  return devices;
}

}  // namespace

DeviceRange parse_device_range(std::string_view text) {
  constexpr std::string_view dots = "..";
  const std::size_t at = text.find(dots);
  if (at == std::string_view::npos) return {.most = parse_devices(text, text)};
  const std::int64_t fewest = parse_devices(text.substr(0, at), text),
                     most = parse_devices(text.substr(at + dots.size()), text);
  require(fewest <= most, "--gpus={} ends below its start (use {}..{})", text, most, fewest);
  return {.fewest = fewest, .most = most};
}

}  // namespace echelon
