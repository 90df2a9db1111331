#include "parity/router_choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {

RouterChoices::RouterChoices(RunConfig config, Targets targets) {
  config.data.balance_batch = false;  // which rank has a sequence then depends on documents
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, targets);
  const Interpose nothing;
  (void)run_training(config,
                     {.interpose = echelon::recorded(blueprint, batches, choices_, nothing), .targets = targets});
}

std::int64_t expect_equal_choices(const echelon::Choices& actual, const echelon::Choices& expected,
                                  const RunConfig& config) {
  const TrainingConfig& t = config.training;
  std::int64_t num_choices = 0;
  for (std::int64_t layer = 0; layer < config.model.num_hidden_layers; ++layer) {
    if (!config.model.mixture.is_in(layer)) continue;
    const std::string router = fmt::format("model.layers.{}.mlp.gate.weight", layer);
    for (std::int64_t step = 1; step <= t.steps; ++step)
      for (std::int64_t token = 0; token < t.global_batch_size * t.seq_len; ++token) {
        const ChoicePlace place = {step, router, token};
        const RoutedChoice *const a = actual.at(place), *const b = expected.at(place);
        if (a == nullptr || b == nullptr) {
          ADD_FAILURE() << "token " << token << " of step " << step << " was not routed by " << router;
          return num_choices;
        }
        ++num_choices;
        EXPECT_TRUE(std::ranges::is_permutation(a->experts, b->experts))
            << "token " << token << " of step " << step << " chose other experts by " << router;
      }
  }
  return num_choices;
}

}  // namespace echelon::testing
