#include "checkpoint/state/state_file.h"
#include "base/error.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/state/state_names.h"
#include "checkpoint/state/state_reader.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

#include <fmt/format.h>

#include <cmath>

namespace echelon::fuzz {
namespace {

const Sizes matrix = {6, 4}, vector = {10};

Manifest manifest_of(const std::string& header, std::size_t file_bytes) {
  Manifest manifest;
  manifest.parameters = {{"m", matrix}, {"v", vector}};
  manifest.states = {{"weight", DType::float32}, {"exp_avg", DType::bfloat16}};
  manifest.lineage = {{.attempt = 1}};
  manifest.files = {{state_file_name(1, 0), static_cast<std::int64_t>(file_bytes), digest_of(header), {Range{0, 2}}}};
  return manifest;
}

std::string with_digests(std::string_view json, std::string_view data) {
  std::string digests;
  for (std::string_view rest = data; !rest.empty(); rest.remove_prefix(std::min<std::size_t>(rest.size(), block_bytes)))
    digests += to_text(digest_of(rest.substr(0, block_bytes)));
  if (!json.starts_with('{')) return std::string(json);
  return fmt::format(R"({{"__metadata__":{{"{}":"{}","{}":"{}"}}{}{})", block_bytes_key, block_bytes, digests_key,
                     digests, json.find('"') == std::string_view::npos ? "" : ",", json.substr(1));
}

/// Whatever is found is all of it: no value of `out` stays what it was.
void read_slice(const StateReader& reader, const StateSlice& slice) {
  const auto num_bytes = static_cast<std::size_t>(slice.slice.num_elements() * size_of(slice.dtype));
  std::vector<std::byte> out(num_bytes), again(num_bytes, std::byte{0xff});
  StateReader::Cache cache;
  try {
    reader.read(slice, out.data(), cache);
    reader.read(slice, again.data(), cache);
  } catch (const Error&) {
    return;
  }
  if (out != again) throw std::logic_error("a slice has values that nobody read");
}

void read_all(const InputFolder& folder) {
  const StateReader reader(folder.path());
  try {
    reader.verify();
  } catch (const Error&) {
    // Parts of it may be whole.
  }
  for (const std::string state : {"weight", "exp_avg"})
    for (const auto& [name, sizes] : {std::pair<std::string, Sizes>{"m", matrix}, {"v", vector}}) {
      const TensorSlice whole(sizes), part = whole.elements({1, whole.num_elements() / 2}),
                                      padded(sizes, sizes.num_dims() - 1, {2, sizes[-1]});
      read_slice(reader, {.parameter = name, .state = state, .dtype = DType::float32, .slice = whole});
      read_slice(reader, {.parameter = name, .state = state, .dtype = DType::bfloat16, .slice = part});
      read_slice(reader, {.parameter = name, .state = state, .dtype = DType::float64, .slice = padded});
    }
}

}  // namespace

int state_file(const std::uint8_t* data, std::size_t size) {
  static const InputFolder folder;
  std::string_view text = text_of(data, size);
  const bool is_raw = text.starts_with('!');
  if (is_raw) text.remove_prefix(1);
  const std::string_view json = take_part(text);
  const std::string header = header_bytes_of(is_raw ? std::string(json) : with_digests(json, text));
  folder.put(state_file_name(1, 0), header + std::string(text));
  folder.put(manifest_name(1), to_text(manifest_of(header, header.size() + text.size())));
  const HeapBound bound(size);
  try {
    read_all(folder);
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace echelon::fuzz
