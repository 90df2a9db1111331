#include "report/html/html_timeline.h"

#include "report/html/bar_code.h"
#include "report/html/html_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {

BarKind bar_kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return BarKind::forward;
    case ActionKind::backward: return BarKind::backward;
    case ActionKind::backward_input: return BarKind::backward_input;
    case ActionKind::backward_weight: return BarKind::backward_weight;
    case ActionKind::receive_forward:
    case ActionKind::send_forward:
    case ActionKind::receive_backward:
    case ActionKind::send_backward: return BarKind::transfer;
    case ActionKind::count_tokens:
    case ActionKind::reduce_gradients:
    case ActionKind::reduce_parts:
    case ActionKind::sum_replicas:
    case ActionKind::sum_tied:
    case ActionKind::gather_parameters:
    case ActionKind::report: return BarKind::collective;
    case ActionKind::clip:
    case ActionKind::update: return BarKind::optimizer;
    case ActionKind::load_batch:
    case ActionKind::take_snapshot:
    case ActionKind::clear_gradients:
    case ActionKind::open_gradients:
    case ActionKind::store_gradients:
    case ActionKind::release_parameters: return BarKind::other;
  }
  return BarKind::other;
}

std::string_view name_of(BarKind kind) {
  switch (kind) {
    case BarKind::forward: return "forward";
    case BarKind::backward: return "backward";
    case BarKind::backward_input: return "backward_input";
    case BarKind::backward_weight: return "backward_weight";
    case BarKind::dispatch: return "dispatch";
    case BarKind::combine: return "combine";
    case BarKind::transfer: return "transfer";
    case BarKind::collective: return "collective";
    case BarKind::optimizer: return "optimizer";
    case BarKind::other: return "other";
  }
  return "?";
}

HtmlTimeline html_timeline(std::string title, const Timeline& timeline, const std::vector<Program>& programs) {
  HtmlTimeline figure = {.title = std::move(title), .note = {}, .rows = {}, .bars = {}};
  for (std::size_t rank = 0; rank < programs.size(); ++rank) figure.rows.push_back(fmt::format("rank {}", rank));
  double begin = no_time;
  for (const Event& event : timeline.events) begin = std::min(begin, event.start);
  for (const Event& event : timeline.events) {
    if (!(event.end > event.start) || event.end == no_time) continue;
    const Action& action = programs[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)];
    figure.bars.push_back({.row = event.rank,
                           .kind = bar_kind_of(action.kind),
                           .stage = action.stage,
                           .microbatch = action.microbatch,
                           .start = event.start - begin,
                           .end = event.end - begin});
  }
  for (const ExchangeEvent& exchange : timeline.exchanges) {
    const Action& pass =
        programs[static_cast<std::size_t>(exchange.rank)][static_cast<std::size_t>(exchange.action_id)];
    figure.bars.push_back({.row = exchange.rank,
                           .kind = exchange.name == name_of(BarKind::dispatch) ? BarKind::dispatch : BarKind::combine,
                           .stage = pass.stage,
                           .microbatch = pass.microbatch,
                           .start = exchange.start - begin,
                           .end = exchange.end - begin});
  }
  return figure;
}

namespace {

bool has_several_stages(const HtmlTimeline& timeline) {
  std::vector<int> stage_of(timeline.rows.size(), -1);
  return std::any_of(timeline.bars.begin(), timeline.bars.end(), [&](const TimelineBar& bar) {
    int& stage = stage_of[static_cast<std::size_t>(bar.row)];
    if (lane_of(bar.kind) != BarLane::actions || bar.stage < 0) return false;
    if (stage < 0) stage = bar.stage;
    return stage != bar.stage;
  });
}

}  // namespace

std::string to_html(const HtmlTimeline& timeline, int number) {
  const HtmlTimeline shown = reduced(timeline);
  const BarCode code = encode(shown);
  nlohmann::ordered_json data = {{"rows", shown.rows},
                                 {"span", code.span_seconds},
                                 {"ticks", BarCode::num_ticks},
                                 {"groups", nlohmann::ordered_json::array()}};
  std::array<bool, num_bar_kinds> is_used{};
  for (const TimelineBar& bar : shown.bars) is_used[static_cast<std::size_t>(bar.kind)] = true;
  for (const BarGroup& group : code.groups)
    data["groups"].push_back({name_of(group.kind), group.stage, group.is_merged ? 1 : 0});
  data["bars"] = code.base64;

  std::string html =
      fmt::format("<figure class=\"timeline\" id=\"timeline-{}\" data-bars=\"{}\">\n<figcaption><h3>{}</h3>", number,
                  shown.bars.size(), escaped(shown.title.empty() ? "Pipeline" : shown.title));
  html +=
      "<div class=\"buttons\"><button type=\"button\" data-do=\"in\" aria-label=\"zoom in\">+</button>"
      "<button type=\"button\" data-do=\"out\" aria-label=\"zoom out\">−</button>"
      "<button type=\"button\" data-do=\"reset\">whole step</button></div></figcaption>\n";
  html += "<ul class=\"legend\">";
  for (int kind = 0; kind < num_bar_kinds; ++kind) {
    const std::string_view name = name_of(static_cast<BarKind>(kind));
    if (is_used[static_cast<std::size_t>(kind)])
      html += fmt::format("<li><i class=\"kind {}\"></i>{}</li>", name, name);
  }
  if (has_several_stages(shown)) html += "<li class=\"word\">a rank's later stages are paler</li>";
  html += fmt::format(
      "</ul>\n<div class=\"stage\"><canvas tabindex=\"0\" role=\"application\" aria-label=\"{}: {} bars in {} rows "
      "over {}. Arrow keys go from bar to bar and "
      "from row to row, plus and minus zoom, Home shows the whole.\"></canvas><div class=\"tip\" hidden></div><div "
      "class=\"window\"><i></i></div></div>\n",
      escaped(shown.title), shown.bars.size(), shown.rows.size(), text_of(HtmlUnit::seconds, code.span_seconds));
  html +=
      "<p class=\"readout\" aria-live=\"polite\">Point at a bar, or tap it, to learn what it is. Ctrl and the wheel, "
      "two fingers, + and − zoom; a drag "
      "moves.</p>\n";
  if (!shown.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escaped(shown.note));
  return html + fmt::format("<script type=\"application/json\">{}</script>\n</figure>\n",
                            embedded(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

}  // namespace echelon
