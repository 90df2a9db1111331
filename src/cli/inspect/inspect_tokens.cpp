#include "cli/inspect/inspect_tokens.h"

#include "base/text/counted.h"
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
    fmt::print("{}: {} of type {}, {}, {}{}\n", dataset.prefix(), counted(dataset.num_tokens(), "token"),
               name_of(dataset.token_type()), counted(dataset.num_sequences(), "sequence"),
               counted(dataset.num_documents(), "document"),
               mask ? "; loss falls on " + counted(num_trained, "token") : "");
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
