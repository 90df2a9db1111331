#include "report/html/drawn_box.h"

#include "schedule/timeline.h"

#include <fmt/format.h>

namespace echelon {
namespace {

constexpr double narrowest_label = 9;

struct Colour {
  int red = 0, green = 0, blue = 0;
};

Colour full_colour(ActionKind kind) {
  switch (lane_of(kind)) {
    case Lane::transfer: return {13, 148, 136};
    case Lane::collective: return {190, 60, 60};
    case Lane::compute: break;
  }
  if (kind == ActionKind::forward) return {61, 114, 192};
  if (kind == ActionKind::backward_weight) return {217, 119, 6};
  if (kind == ActionKind::update) return {124, 77, 168};
  return is_compute(kind) ? Colour{46, 139, 87} : Colour{140, 140, 140};
}

}  // namespace

std::string svg_box(const Action& action, const Rectangle& rectangle, double lightness) {
  const auto [x, y, width, height] = rectangle;
  const Colour full = full_colour(action.kind);
  const auto mix = [&](int channel) { return static_cast<int>(channel + (255 - channel) * lightness); };
  std::string svg = fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="#{:02x}{:02x}{:02x}" stroke="white" stroke-width="0.5">)",
      x, y, width, height, mix(full.red), mix(full.green), mix(full.blue));
  svg += fmt::format("<title>{}</title></rect>\n", to_string(action));
  if (width < narrowest_label || !is_compute(action.kind)) return svg;
  return svg + fmt::format(R"(<text x="{:.2f}" y="{:.2f}" text-anchor="middle" fill="{}">{}</text>)"
                           "\n",
                           x + width / 2, y + height / 2 + 4, lightness > 0.4 ? "black" : "white",
                           action.microbatch + 1);
}

}  // namespace echelon
