#include "base/text/counted.h"
#include "pages/exchange/exchange_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

std::string text_lane(const std::vector<ExchangePicture::Bar>& bars, double columns_per_ms) {
  std::string row;
  for (const ExchangePicture::Bar& bar : bars) {
    const auto column_of = [&](double ms) { return static_cast<std::size_t>(std::lround(ms * columns_per_ms)); };
    const std::size_t first = std::max(row.size(), column_of(bar.start)),
                      end = std::max(column_of(bar.start) + 1, column_of(bar.end));
    if (first >= end) continue;
    row.resize(first, ' ');
    // A blank parts it from the bar that follows at once.
    const std::size_t shown = end - first > 1 ? end - first - 1 : 1;
    row += bar.name.substr(0, shown);
    row.resize(first + shown, '=');
    row.resize(end, ' ');
  }
  row.erase(row.find_last_not_of(' ') + 1);
  return row;
}

}  // namespace

std::string to_text(const ExchangePicture& picture, int max_columns) {
  double longest = 0;
  for (const ExchangePicture::Pass& pass : picture.passes) longest = std::max(longest, pass.end);
  const double columns_per_ms = longest > 0 ? max_columns / longest : 0;
  std::string text = fmt::format(
      "a layer with experts on {}, {} loads, {}; the most loaded rank, until its rows are back\n",
      counted(picture.request.num_ranks, "rank"), picture.request.load, counted(picture.num_rounds, "round"));
  for (const ExchangePicture::Pass& pass : picture.passes) {
    text += fmt::format("\n{}: {:.4g} ms; rows travel for {:.4g} ms, of which {:.4g} ms are exposed\n", pass.name,
                        pass.end, pass.exchange_ms(), pass.exposed_ms());
    text += fmt::format("compute   {}\nexchange  {}\n", text_lane(pass.computed, columns_per_ms),
                        text_lane(pass.exchanged, columns_per_ms));
  }
  return text;
}

}  // namespace echelon
