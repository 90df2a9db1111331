// The options of `echelon draw` for the exchange of a layer's experts.
#pragma once

#include "pages/exchange/exchange_picture.h"

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}  // namespace CLI

namespace echelon {

/// `request` outlives the app; without ranks something else is drawn.
void add_exchange_options(CLI::App& app, ExchangeRequest& request);

}  // namespace echelon
