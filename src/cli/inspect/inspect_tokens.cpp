#include "cli/inspect/inspect_tokens.h"

#include "cli/inspect/print_json.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"

namespace echelon {

ExitStatus inspect_tokens(const std::string& prefix, bool json) {
  const IndexedDataset dataset(prefix);
  const std::optional<LossMask> mask = LossMask::of(dataset);
  std::int64_t num_trained = 0;
  for (std::int64_t i = 0; mask && i < dataset.num_tokens(); ++i) num_trained += mask->is_trained(i) ? 1 : 0;
  if (!json) {
    fmt::print("{}: {} tokens of type {}, {} sequences, {} documents{}\n", dataset.prefix(), dataset.num_tokens(),
               name_of(dataset.token_type()), dataset.num_sequences(), dataset.num_documents(),
               mask ? fmt::format("; loss falls on {} tokens", num_trained) : "");
    return ExitStatus::success;
  }
  nlohmann::ordered_json found = {{"token_type", name_of(dataset.token_type())},
                                  {"num_tokens", dataset.num_tokens()},
                                  {"num_sequences", dataset.num_sequences()},
                                  {"num_documents", dataset.num_documents()}};
  if (mask) found["num_trained"] = num_trained;
  print_json(found);
  return ExitStatus::success;
}

}  // namespace echelon
