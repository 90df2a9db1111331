#include "checkpoint/state/state_reader.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "checkpoint/safetensors/convert_values.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/state/rectangles.h"
#include "checkpoint/state/state_file.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>

namespace echelon {
namespace {

Range common(Range a, Range b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.first + a.count, b.first + b.count) - first)};
}

/// A tensor of a state file.
struct StoredRectangle : MatrixPart {
  DType dtype{};
  std::int64_t first_byte = 0;  // of the file's data
};

bool is_within(Range range, std::int64_t size) { return range.first <= size && range.count <= size - range.first; }

/// A name may say anything: the rectangle is in the parameter, and the tensor has as many values.
StoredRectangle parse_rectangle(const StateTensorName& place, const Sizes& sizes, const FileTensor& tensor) {
  require(place.is_vector == (sizes.num_dims() == 1) && is_within(place.columns, sizes[-1]) &&
              (place.is_vector || is_within(place.rows, sizes.num_elements() / sizes[-1])),
          "is not a part of a parameter of sizes {}", to_string(sizes));
  require(tensor.dtype && !is_integer(*tensor.dtype), "has dtype {}, which no state has", tensor.format);
  StoredRectangle stored{{place.rows, place.columns}, *tensor.dtype, tensor.first_byte};
  require(tensor.num_bytes / size_of(stored.dtype) == stored.num_elements(), "has another size than its name");
  return stored;
}

std::vector<Digest> parse_digests(const SafetensorsHeader& header, std::int64_t data_bytes) {
  const auto size = header.metadata.find(block_bytes_key), digests = header.metadata.find(digests_key);
  require(size != header.metadata.end() && digests != header.metadata.end(), "its header has no digests");
  require(size->second == std::to_string(block_bytes), "its blocks have {} bytes, but this program reads blocks of {}",
          printable(size->second), block_bytes);
  const auto num_blocks = static_cast<std::size_t>((data_bytes + block_bytes - 1) / block_bytes);
  const std::string_view text = digests->second;
  require(text.size() == num_blocks * digest_letters, "its header has not one digest for each of {} blocks",
          num_blocks);
  std::vector<Digest> blocks;
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const auto digest = parse_digest(text.substr(i * digest_letters, digest_letters));
    require(digest.has_value(), "the digest of block {} is not hexadecimal", i);
    blocks.push_back(*digest);
  }
  return blocks;
}

std::int64_t require_length(const File& file, std::int64_t expected) {
  const std::int64_t num_bytes = file.num_bytes();
  require(num_bytes == expected, "{} has {} bytes, but its manifest says {}: it is {}", file.path().string(), num_bytes,
          expected, num_bytes < expected ? "cut off" : "too long");
  return num_bytes;
}

}  // namespace

struct StateReader::FileIndex {
  std::filesystem::path path;
  std::int64_t header_bytes = 0, data_bytes = 0;
  std::vector<Digest> blocks;
  std::map<std::string, std::vector<StoredRectangle>> tensors;  // by "state/parameter"
};

std::vector<std::byte> StateReader::read_block(const FileIndex& index, std::int64_t block) const {
  const std::int64_t first = block * block_bytes, count = std::min(block_bytes, index.data_bytes - first);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  File::open_in_folder(folder_, index.path.filename().string())
      .read_at(index.header_bytes + first, bytes.data(), count);
  read_bytes_ += count;
  require(digest_of(bytes.data(), bytes.size()) == index.blocks[static_cast<std::size_t>(block)],
          "{} is damaged: block {} (bytes {} to {}) has another digest than when it was written", index.path.string(),
          block, index.header_bytes + first, index.header_bytes + first + count);
  return bytes;
}

const std::vector<std::byte>& StateReader::Cache::block(const StateReader& reader, const FileIndex& index,
                                                        std::int64_t number) {
  constexpr std::size_t most_blocks = 16;  // as many files as have a part of one parameter
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.index == &index && entry.number == number; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    if (entries_.size() == most_blocks) entries_.pop_back();
    entries_.push_front({&index, number, reader.read_block(index, number)});
  }
  return entries_.front().bytes;
}

StateReader::StateReader(std::filesystem::path folder)
    : folder_(std::move(folder)), manifest_(read_manifest(folder_)), indices_(manifest_.files.size()) {
  for (const Manifest::Parameter& parameter : manifest_.parameters)
    require(parameters_.emplace(parameter.name, parameters_.size()).second,
            "the manifest in {} names the parameter '{}' twice", folder_.string(), printable(parameter.name));
  std::set<std::string_view> names;
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    require(names.insert(manifest_.files[f].name).second, "the manifest in {} names the file '{}' twice",
            folder_.string(), printable(manifest_.files[f].name));
    std::int64_t end = 0;
    for (const Range& range : manifest_.files[f].parameters) {
      require(range.first >= end, "the manifest in {} names a parameter of '{}' twice", folder_.string(),
              printable(manifest_.files[f].name));
      end = range.first + range.count;
    }
  }
  parameter_files_ = ParameterFiles(manifest_.files);
}

StateReader::~StateReader() = default;

const StateReader::FileIndex& StateReader::index_of(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<FileIndex>& index = indices_[number];
  if (index) return *index;
  const Manifest::File& expected = manifest_.files[number];
  auto found = std::make_unique<FileIndex>();
  found->path = folder_ / expected.name;
  const File file = File::open_in_folder(folder_, expected.name);
  const std::int64_t num_bytes = require_length(file, expected.num_bytes);
  const std::string bytes = read_header_bytes(file, found->path);
  require(digest_of(bytes) == expected.header, "{} is damaged: its header has another digest than its manifest says",
          found->path.string());
  const SafetensorsHeader header = parse_safetensors_header(bytes, num_bytes, found->path);
  found->header_bytes = header.num_bytes;
  found->data_bytes = num_bytes - header.num_bytes;
  try {
    found->blocks = parse_digests(header, found->data_bytes);
    for (const auto& [name, tensor] : header.tensors) {
      const auto place = parse_state_tensor_name(name);
      const auto parameter = place ? parameters_.find(place->parameter) : parameters_.end();
      if (parameter == parameters_.end()) continue;
      try {
        StoredRectangle stored = parse_rectangle(*place, manifest_.parameters[parameter->second].sizes, tensor);
        stored.first_byte -= header.num_bytes;
        found->tensors[place->state + "/" + place->parameter].push_back(stored);
      } catch (const Error& error) {
        throw Error(fmt::format("tensor '{}' {}", printable(name), error.what()));
      }
    }
  } catch (const Error& error) {
    throw Error(fmt::format("{} cannot be read: {}", found->path.string(), error.what()));
  }
  index = std::move(found);
  return *index;
}

void StateReader::read(const StateSlice& slice, std::byte* out) const {
  Cache cache;
  read(slice, out, cache);
}

void StateReader::read(const StateSlice& slice, std::byte* out, Cache& cache) const {
  const std::int64_t size = size_of(slice.dtype);
  require_parameter(slice.parameter, slice.slice.global_sizes());
  const auto parameter = parameters_.find(slice.parameter);
  require(manifest_.parameters[parameter->second].has(slice.state),
          "{} has no '{}' of '{}', which was not trained (use --checkpoint.exclude_from_loading=optimizer)",
          folder_.string(), slice.state, slice.parameter);
  const std::vector<SliceRectangle> wanted = rectangles_of(slice.slice);
  std::int64_t num_wanted = 0, num_found = 0;
  for (const SliceRectangle& part : wanted) num_wanted += part.num_elements();
  if (num_wanted < slice.slice.num_elements())
    std::memset(out, 0, static_cast<std::size_t>(slice.slice.num_elements() * size));

  const auto copy_bytes = [&](const FileIndex& index, std::int64_t first_byte, std::int64_t num_bytes, std::byte* to) {
    while (num_bytes > 0) {
      const std::vector<std::byte>& block = cache.block(*this, index, first_byte / block_bytes);
      const std::int64_t at = first_byte % block_bytes, count = std::min(num_bytes, block_bytes - at);
      std::memcpy(to, block.data() + at, static_cast<std::size_t>(count));
      first_byte += count;
      num_bytes -= count;
      to += count;
    }
  };
  std::vector<std::byte> run;
  const auto copy_run = [&](const FileIndex& index, const StoredRectangle& stored, std::int64_t first,
                            std::int64_t count, std::byte* to) {
    const std::int64_t stored_size = size_of(stored.dtype), at = stored.first_byte + first * stored_size;
    if (stored.dtype == slice.dtype) return copy_bytes(index, at, count * stored_size, to);
    constexpr std::int64_t chunk = 1 << 14;
    for (std::int64_t done = 0; done < count; done += chunk) {
      const std::int64_t part = std::min(chunk, count - done);
      run.resize(static_cast<std::size_t>(part * stored_size));
      copy_bytes(index, at + done * stored_size, part * stored_size, run.data());
      convert_values(stored.dtype, run.data(), slice.dtype, to + done * size, part);
    }
  };
  std::vector<MatrixPart> found;
  for (const std::size_t number : parameter_files_.files_of(static_cast<std::int64_t>(parameter->second))) {
    const FileIndex& index = index_of(number);
    const auto tensors = index.tensors.find(slice.state + "/" + slice.parameter);
    if (tensors == index.tensors.end()) continue;
    for (const StoredRectangle& stored : tensors->second)
      for (const SliceRectangle& part : wanted) {
        const Range rows = common(stored.rows, part.rows), columns = common(stored.columns, part.columns);
        if (rows.count == 0 || columns.count == 0) continue;
        const bool is_whole = columns.count == stored.columns.count && columns.count == part.stride;
        const std::int64_t num_runs = is_whole ? 1 : rows.count, per_run = is_whole ? rows.count : 1;
        for (std::int64_t row = rows.first; row < rows.first + num_runs; ++row) {
          const std::int64_t from = (row - stored.rows.first) * stored.columns.count + columns.first -
                                    stored.columns.first,
                             to = part.first + (row - part.rows.first) * part.stride + columns.first -
                                  part.columns.first;
          copy_run(index, stored, from, per_run * columns.count, out + to * size);
        }
        num_found += rows.count * columns.count;
        found.push_back({rows, columns});
      }
  }
  require(num_found == num_wanted, "{} has {} of the {} numbers of '{}' of '{}' that are needed", folder_.string(),
          num_found, num_wanted, slice.state, slice.parameter);
  require(are_disjoint(std::move(found)), "{} has a number of '{}' of '{}' twice", folder_.string(), slice.state,
          slice.parameter);
}

void StateReader::require_parameter(const std::string& name, const Sizes& sizes) const {
  const auto parameter = parameters_.find(name);
  require(parameter != parameters_.end(), "{} has no parameter '{}'", folder_.string(), name);
  const Sizes& own = manifest_.parameters[parameter->second].sizes;
  require(own == sizes, "{} has '{}' {}, but the model has it {}", folder_.string(), name, to_string(own),
          to_string(sizes));
}

void StateReader::require_bytes(std::int64_t least) const {
  std::int64_t sum = 0;
  for (const Manifest::File& file : manifest_.files) {
    const File opened = File::open_in_folder(folder_, file.name);
    require_length(opened, file.num_bytes);
    sum = std::min(sum + file.num_bytes, least);
  }
  require(sum >= least, "the files of {} have {} bytes, but its weights alone take {}", folder_.string(), sum, least);
}

void StateReader::verify() const {
  std::map<std::string, std::vector<MatrixPart>> found;
  for (std::size_t number = 0; number < manifest_.files.size(); ++number) {
    const FileIndex& index = index_of(number);
    for (std::size_t block = 0; block < index.blocks.size(); ++block)
      (void)read_block(index, static_cast<std::int64_t>(block));
    for (const auto& [name, tensors] : index.tensors)
      found[name].insert(found[name].end(), tensors.begin(), tensors.end());
  }
  for (const auto& [name, rectangles] : found)
    require(are_disjoint(rectangles), "{} has a number of '{}' twice", folder_.string(), printable(name));
  std::vector<std::string> all_states;
  for (const auto& [state, dtype] : manifest_.states) all_states.push_back(state);
  for (const Manifest::Parameter& parameter : manifest_.parameters)
    for (const std::string& state : parameter.states.empty() ? all_states : parameter.states) {
      std::int64_t count = 0;
      for (const MatrixPart& part : found[fmt::format("{}/{}", state, parameter.name)]) count += part.num_elements();
      require(count == parameter.sizes.num_elements(), "{} has {} of the {} numbers of '{}' of '{}'", folder_.string(),
              count, parameter.sizes.num_elements(), printable(state), printable(parameter.name));
    }
  verify_copies();
}

void StateReader::verify_copies() const {
  for (const Manifest::Copy& copy : manifest_.copies) {
    require_length(File::open_in_folder(folder_, copy.name), copy.num_bytes);
    require(digest_of(read_text_in_folder(folder_, copy.name)) == copy.content,
            "{} is damaged: its digest is another one", (folder_ / copy.name).string());
  }
}

}  // namespace echelon
