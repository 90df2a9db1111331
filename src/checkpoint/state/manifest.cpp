#include "checkpoint/state/manifest.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text/printable.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace echelon {
namespace {

using WrittenJson = nlohmann::ordered_json;  // of what we write
// Of what is read: it finds a key among a million.
using ReadJson = nlohmann::json;

constexpr std::int64_t newest_format = 1;
constexpr std::int64_t largest_count = 1LL << 53;  // a double holds it, as other readers of JSON need
// A checkpoint in which parameters lack states, such as frozen ones, is not read as if they had them.
constexpr std::string_view parameter_states = "parameter_states";
// One that has the adapters of a model alone.
constexpr std::string_view adapters_of_base = "adapters";
constexpr std::array<std::string_view, 2> known_features = {parameter_states, adapters_of_base};

constexpr std::string_view before_digest = R"({"digest":")", before_manifest = R"(","manifest":)", at_end = "}\n";

WrittenJson to_json(const RunScalars& scalars) {
  WrittenJson json = {{"step", scalars.step}, {"skipped_steps", scalars.skipped_steps}};
  if (scalars.loss_scale) {
    json["loss_scale"] = *scalars.loss_scale;
    json["steps_since_scale_changed"] = scalars.steps_since_scale_changed;
  }
  json["first_lr_step"] = scalars.first_lr_step;
  json["sequences"] = scalars.sequences;
  json["seq_len"] = scalars.seq_len;
  json["data"] = {{"bin_bytes", scalars.data.bin_bytes},
                  {"idx_bytes", scalars.data.idx_bytes},
                  {"idx", to_text(scalars.data.idx)},
                  {"sampled_bin", to_text(scalars.data.sampled_bin)}};
  if (scalars.data.packing) json["data"]["packing"] = to_text(*scalars.data.packing);
  const SavedRouters& routers = scalars.routers;
  if (!routers.counts.empty()) json["routers"] = {{"counts", routers.counts}, {"bias", routers.bias}};
  return json;
}

WrittenJson sizes_list(const Sizes& sizes) {
  WrittenJson shape = WrittenJson::array();
  for (int dim = 0; dim < sizes.num_dims(); ++dim) shape.push_back(sizes[dim]);
  return shape;
}

WrittenJson to_json(const Manifest::File& file) {
  WrittenJson ranges = WrittenJson::array();
  for (const Range& range : file.parameters) ranges.push_back({range.first, range.count});
  return {{"name", file.name}, {"bytes", file.num_bytes}, {"header", to_text(file.header)}, {"parameters", ranges}};
}

/// Of the text of a list of files, without its brackets. Of many thousand files the text itself takes long.
std::int64_t letters_of(const std::vector<Manifest::File>& files) {
  const auto letters = [](std::int64_t number) { return static_cast<std::int64_t>(fmt::formatted_size("{}", number)); };
  const std::int64_t of_empty = std::ssize(to_json(Manifest::File()).dump()) - letters(0), brackets = 3;  // [,]
  std::int64_t sum = 0;
  for (const Manifest::File& file : files) {
    sum += of_empty + std::ssize(file.name) + letters(file.num_bytes);
    for (const Range& range : file.parameters) sum += brackets + letters(range.first) + letters(range.count);
    sum += std::max<std::int64_t>(0, std::ssize(file.parameters) - 1);
  }
  return sum + std::max<std::int64_t>(0, std::ssize(files) - 1);
}

WrittenJson to_json(const Manifest& manifest) {
  WrittenJson json = {
      {"format", newest_format},     {"requires", WrittenJson::array()},     {"program", "echelon " ECHELON_VERSION},
      {"attempt", manifest.attempt}, {"scalars", to_json(manifest.scalars)}, {"config", manifest.config}};
  if (manifest.base) json["base"] = to_text(*manifest.base);
  json["lineage"] = WrittenJson::array();
  for (const LineageEntry& entry : manifest.lineage)
    json["lineage"].push_back({{"attempt", entry.attempt}, {"from", entry.from}, {"changes", entry.changes}});
  if (!manifest.products.empty()) json["products"] = manifest.products;
  json["states"] = WrittenJson::object();
  for (const auto& [state, dtype] : manifest.states) json["states"][state] = safetensors_format(dtype);
  json["parameters"] = WrittenJson::array();
  for (const Manifest::Parameter& parameter : manifest.parameters) {
    WrittenJson& written = json["parameters"].emplace_back(WrittenJson{parameter.name, sizes_list(parameter.sizes)});
    if (!parameter.states.empty()) written.push_back(parameter.states);
  }
  if (!std::ranges::all_of(manifest.parameters, [](const auto& parameter) { return parameter.states.empty(); }))
    json["requires"].push_back(parameter_states);
  if (manifest.base) json["requires"].push_back(adapters_of_base);
  json["files"] = WrittenJson::array();
  for (const Manifest::File& file : manifest.files) json["files"].push_back(to_json(file));
  json["copies"] = WrittenJson::array();
  for (const Manifest::Copy& copy : manifest.copies)
    json["copies"].push_back({{"name", copy.name}, {"bytes", copy.num_bytes}, {"digest", to_text(copy.content)}});
  return json;
}

// A manifest may come from anywhere: whatever is not what we write is refused, in a sentence that does not quote it.

std::int64_t count_in(const ReadJson& json, const char* key) {
  const ReadJson& value = json.at(key);
  require(value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= largest_count,
          "'{}' is no count", key);
  return value.get<std::int64_t>();
}

std::string text_in(const ReadJson& json, const char* key) {
  const ReadJson& value = json.at(key);
  require(value.is_string(), "'{}' is no text", key);
  return value.get<std::string>();
}

Digest digest_in(const ReadJson& json, const char* key) {
  const auto digest = parse_digest(text_in(json, key));
  require(digest.has_value(), "'{}' is no digest", key);
  return *digest;
}

std::string file_name_in(const ReadJson& json) {
  const std::string name = text_in(json, "name");
  const std::filesystem::path path = name;
  require(path.has_filename() && path == path.filename() && name != "." && name != ".." &&
              name.find('\0') == std::string::npos,
          "'{}' is not the name of a file next to it", printable(name));
  return name;
}

const ReadJson& list_in(const ReadJson& json, const char* key) {
  const ReadJson& value = json.at(key);
  require(value.is_array(), "'{}' is no list", key);
  return value;
}

SavedRouters parse_routers(const ReadJson& json) {
  SavedRouters routers;
  for (const ReadJson& count : list_in(json, "counts")) {
    require(count.is_number_integer() && count.get<double>() >= 0 && count.get<double>() <= largest_count,
            "'counts' of routers has something that is no count");
    routers.counts.push_back(count.get<std::int64_t>());
  }
  for (const ReadJson& bias : list_in(json, "bias")) {
    require(bias.is_number() && std::abs(bias.get<double>()) <= std::numeric_limits<float>::max(),
            "'bias' of routers has something that is no float32");
    routers.bias.push_back(bias.get<float>());
  }
  require(routers.bias.empty() || routers.bias.size() == routers.counts.size(),
          "'bias' of routers has not as many values as 'counts'");
  return routers;
}

RunScalars parse_scalars(const ReadJson& json) {
  RunScalars scalars;
  scalars.step = count_in(json, "step");
  scalars.skipped_steps = count_in(json, "skipped_steps");
  if (json.contains("loss_scale")) {
    const ReadJson& scale = json.at("loss_scale");
    require(scale.is_number() && std::isfinite(scale.get<double>()) && scale.get<double>() > 0,
            "'loss_scale' is not above 0");
    scalars.loss_scale = scale.get<double>();
    scalars.steps_since_scale_changed = count_in(json, "steps_since_scale_changed");
  }
  scalars.first_lr_step = count_in(json, "first_lr_step");
  scalars.sequences = count_in(json, "sequences");
  scalars.seq_len = count_in(json, "seq_len");
  const ReadJson& data = json.at("data");
  scalars.data = {count_in(data, "bin_bytes"), count_in(data, "idx_bytes"), digest_in(data, "idx"),
                  digest_in(data, "sampled_bin")};
  if (data.contains("packing")) scalars.data.packing = digest_in(data, "packing");
  if (json.contains("routers")) scalars.routers = parse_routers(json.at("routers"));
  require(scalars.skipped_steps <= scalars.step, "'skipped_steps' is more than 'step'");
  return scalars;
}

std::vector<std::string> parse_states(const ReadJson& json) {
  require(json.is_array() && !json.empty(), "the states of a parameter are no list of names");
  std::vector<std::string> states;
  for (const ReadJson& state : json) {
    require(state.is_string(), "the states of a parameter are no list of names");
    states.push_back(state.get<std::string>());
  }
  return states;
}

Manifest::Parameter parse_parameter(const ReadJson& json) {
  require(json.is_array() && (json.size() == 2 || json.size() == 3) && json[0].is_string() && json[1].is_array() &&
              !json[1].empty() && json[1].size() <= 3,
          "a parameter is not a name and one to three sizes");
  Manifest::Parameter parameter = {json[0].get<std::string>(), {}};
  if (json.size() == 3) parameter.states = parse_states(json[2]);
  std::int64_t num_elements = 1;
  for (const ReadJson& size : json[1]) {
    require(size.is_number_unsigned() && size.get<double>() <= largest_count && size.get<std::int64_t>() > 0 &&
                !__builtin_mul_overflow(num_elements, size.get<std::int64_t>(), &num_elements) &&
                num_elements <= largest_count,
            "the sizes of parameter '{}' are impossible", printable(parameter.name));
  }
  const auto size = [&](std::size_t dim) { return json[1][dim].get<std::int64_t>(); };
  parameter.sizes = json[1].size() == 1   ? Sizes{size(0)}
                    : json[1].size() == 2 ? Sizes{size(0), size(1)}
                                          : Sizes{size(0), size(1), size(2)};
  return parameter;
}

Manifest::File parse_file(const ReadJson& json, std::int64_t num_parameters) {
  Manifest::File file = {
      .name = file_name_in(json), .num_bytes = count_in(json, "bytes"), .header = digest_in(json, "header")};
  for (const ReadJson& range : list_in(json, "parameters")) {
    require(range.is_array() && range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned(),
            "'parameters' of a file is no list of ranges");
    const auto first = range[0].get<std::uint64_t>(), count = range[1].get<std::uint64_t>();
    const auto most = static_cast<std::uint64_t>(num_parameters);
    require(first <= most && count <= most - first, "'parameters' of a file goes beyond the {} that there are",
            num_parameters);
    file.parameters.push_back({static_cast<std::int64_t>(first), static_cast<std::int64_t>(count)});
  }
  return file;
}

/// Names that only a newer program knows are kept: a run that resumes says that it cannot do them.
std::map<std::string, std::string> parse_products(const ReadJson& json) {
  require(json.is_object(), "'{}' is no object", "products");
  std::map<std::string, std::string> products;
  for (const auto& [dtype, kernels] : json.items()) {
    require(kernels.is_string(), "'{}' has something that is no text", "products");
    products[dtype] = kernels.get<std::string>();
  }
  return products;
}

DType parse_state_format(const std::string& state, const ReadJson& json) {
  const DType none = DType::int32;
  const DType dtype = json.is_string() ? dtype_of_format(json.get<std::string>()).value_or(none) : none;
  require(!is_integer(dtype), "the format of state '{}' is unknown", printable(state));
  return dtype;
}

Manifest parse_body(const ReadJson& json) {
  require(json.is_object(), "it is no JSON object");
  const std::int64_t format = count_in(json, "format");
  require(format <= newest_format, "it has format {}, but this program reads formats up to {}; use a newer one", format,
          newest_format);
  for (const ReadJson& feature : list_in(json, "requires")) {
    const bool is_known = feature.is_string() && std::find(known_features.begin(), known_features.end(),
                                                           feature.get<std::string>()) != known_features.end();
    require(is_known, "it requires '{}', which this program does not know; use a newer one",
            feature.is_string() ? printable(feature.get<std::string>()) : "something");
  }
  Manifest manifest;
  manifest.attempt = count_in(json, "attempt");
  manifest.scalars = parse_scalars(json.at("scalars"));
  manifest.config = text_in(json, "config");
  if (json.contains("base")) manifest.base = digest_in(json, "base");
  for (const ReadJson& entry : list_in(json, "lineage")) {
    LineageEntry& parsed = manifest.lineage.emplace_back();
    parsed.attempt = count_in(entry, "attempt");
    parsed.from = text_in(entry, "from");
    for (const ReadJson& change : list_in(entry, "changes")) {
      require(change.is_string(), "'changes' is no list of texts");
      parsed.changes.push_back(change.get<std::string>());
    }
  }
  if (json.contains("products")) manifest.products = parse_products(json.at("products"));
  require(json.at("states").is_object(), "'states' is no object");
  for (const auto& [state, format_name] : json.at("states").items()) {
    manifest.states.emplace_back(state, parse_state_format(state, format_name));
  }
  for (const ReadJson& parameter : list_in(json, "parameters"))
    manifest.parameters.push_back(parse_parameter(parameter));
  std::int64_t num_bytes = 0;
  for (const ReadJson& file : list_in(json, "files")) {
    manifest.files.push_back(parse_file(file, std::ssize(manifest.parameters)));
    num_bytes += manifest.files.back().num_bytes;
    require(num_bytes <= largest_count, "'files' have more than {} bytes", largest_count);
  }
  for (const ReadJson& copy : list_in(json, "copies"))
    manifest.copies.push_back({file_name_in(copy), count_in(copy, "bytes"), digest_in(copy, "digest")});
  return manifest;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  const std::string body = to_json(manifest).dump(-1, ' ', false, WrittenJson::error_handler_t::replace);
  return fmt::format("{}{}{}{}{}", before_digest, to_text(digest_of(body)), before_manifest, body, at_end);
}

std::int64_t most_bytes_of(Manifest manifest) {
  RunScalars& scalars = manifest.scalars;
  for (std::int64_t* count :
       {&scalars.step, &scalars.skipped_steps, &scalars.steps_since_scale_changed, &scalars.first_lr_step,
        &scalars.sequences, &scalars.seq_len, &scalars.data.bin_bytes, &scalars.data.idx_bytes})
    *count = largest_count;
  std::ranges::fill(scalars.routers.counts, largest_count);
  std::ranges::fill(scalars.routers.bias, -std::numeric_limits<float>::min());
  scalars.loss_scale = std::numeric_limits<double>::min();  // no double has more digits
  const std::int64_t of_files = letters_of(std::exchange(manifest.files, {}));
  return of_files + std::ssize(to_text(manifest));
}

void require_readable(std::int64_t manifest_bytes) {
  require(
      manifest_bytes <= largest_manifest_bytes,
      "the manifest of a checkpoint would have up to {} bytes, but readers take {}: each of many ranks writes parts "
      "of many parameters (use a larger parallelism.pipeline_parallel_degree)",
      manifest_bytes, largest_manifest_bytes);
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) {
  const std::size_t before_body = before_digest.size() + digest_letters + before_manifest.size();
  const std::string_view all = text;
  require(all.size() >= before_body + at_end.size() && all.starts_with(before_digest) &&
              all.substr(before_digest.size() + digest_letters).starts_with(before_manifest) && all.ends_with(at_end),
          "{} is not a manifest, or it is cut off", path.string());
  const std::string_view body = all.substr(before_body, all.size() - before_body - at_end.size());
  require(parse_digest(all.substr(before_digest.size(), digest_letters)) == digest_of(body),
          "{} is damaged: its digest is another one", path.string());
  try {
    return parse_body(parse_bounded_json(body));
  } catch (const ReadJson::exception&) {
    throw Error(fmt::format("{} is not a manifest: something is missing in it", path.string()));
  } catch (const Error& error) {
    throw Error(fmt::format("{} cannot be read: {}", path.string(), error.what()));
  }
}

std::optional<std::filesystem::path> find_manifest(const std::filesystem::path& folder) {
  std::optional<std::int64_t> highest;
  for (const std::string& name : list_folder(folder)) highest = std::max(highest, attempt_of_manifest(name));
  return highest ? std::optional(folder / manifest_name(*highest)) : std::nullopt;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = find_manifest(folder);
  require(path.has_value(), "{} has no manifest, so it is not a complete checkpoint", folder.string());
  return parse_manifest(read_text_in_folder(folder, path->filename().string(), largest_manifest_bytes), *path);
}

}  // namespace echelon
