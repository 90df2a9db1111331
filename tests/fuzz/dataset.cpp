#include "base/error.h"
#include "data/dataset_batches.h"
#include "data/packing/packing_file.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"
#include "tensor/tokens.h"

#include <stdexcept>

namespace echelon::fuzz {
namespace {

constexpr std::int64_t vocab_size = 100, T = 4, most_windows = 64;

void read_windows(const DatasetBatches& batches) {
  std::vector<std::int32_t> tokens(T), next(T), starts(T);
  for (std::int64_t window = 0; window < std::min(batches.windows_per_epoch(T), most_windows); ++window) {
    batches.read(window, T, tokens.data(), next.data());
    batches.read_document_starts(window, T, starts.data());
    for (const std::int32_t token : next)
      if (token != ignored_target && (token < 0 || token >= vocab_size))
        throw std::logic_error("a target is outside of the vocabulary");
  }
}

void read_dataset(const std::string& prefix) {
  const BatchOrder order = {.vocab_size = vocab_size, .eod_mask_loss = true};
  read_windows({IndexedDataset(prefix), order});
  const IndexedDataset stream(prefix);
  read_windows({IndexedDataset(prefix), order, open_packing(stream, T, 0).packed});
  require_tokens_below(vocab_size, stream, stream.num_tokens());
}

}  // namespace

int dataset(const std::uint8_t* data, std::size_t size) {
  static const InputFolder folder;
  std::string_view text = text_of(data, size);
  for (const std::string_view name : {"a.idx", "a.bin"}) folder.put(name, take_part(text));
  folder.remove("a.mask");
  if (!text.empty()) folder.put("a.mask", text);
  const HeapBound bound(size);
  try {
    read_dataset((folder.path() / "a").string());
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace echelon::fuzz
