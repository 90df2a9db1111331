#include "engine/generation/generate.h"

#include "backend/backend.h"
#include "base/divisors.h"
#include "base/error.h"
#include "base/text/printable.h"
#include "checkpoint/hf/generation_config.h"
#include "checkpoint/model_tokenizer.h"
#include "comm/launch/run_ranks.h"
#include "data/tokenizer/embeddings.h"
#include "engine/device/rank_cores.h"
#include "engine/generation/decoder.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const GenerateOptions& options) {
  if (!options.prompt.empty()) return tokenizer.encode(options.prompt);
  const auto begin = tokenizer.end_of_document();
  require(begin.has_value(), "the prompt is empty and the tokenizer has no token between documents; give a prompt");
  return {*begin};
}

/// What rank 0 has, on all ranks; a collective.
void share(Mesh& host, std::span<std::int32_t> values) {
  host.comm({world_axes}).broadcast({values.data(), DType::int32, {std::ssize(values)}}, 0).wait();
}

std::optional<std::vector<std::int32_t>> shared_prompt(Mesh& host, const NextPrompt& next) {
  constexpr std::int32_t none = -1;
  std::optional<std::vector<std::int32_t>> prompt;
  if (host.rank() == 0) prompt = next();
  std::int32_t length = prompt ? static_cast<std::int32_t>(prompt->size()) : none;
  share(host, {&length, 1});
  if (length == none) return std::nullopt;
  if (!prompt) prompt.emplace(static_cast<std::size_t>(length));
  share(host, *prompt);
  return prompt;
}

void require_divided_experts(const ModelSpec& model, std::int64_t ranks) {
  require(ranks >= 1, "--expert-parallel={} is no number of ranks (use 1)", ranks);
  if (ranks == 1) return;
  require(model.has_experts(), "--expert-parallel={} divides experts, and the model has none (use 1)", ranks);
  const std::int64_t num_experts = model.mixture.num_experts;
  require(num_experts % ranks == 0, "--expert-parallel={} does not divide the model's {} experts (use {})", ranks,
          num_experts, closest_divisor(num_experts, ranks));
}

/// Threads, or processes that a launcher started. A container may have torchrun's variables whatever it runs.
RankPlacement place_expert_ranks(int num_ranks) {
  const auto launched = launch_environment();
  if (!launched || (launched->source == LaunchSource::torchrun && num_ranks == 1))
    return place_ranks(CommBackend::automatic, num_ranks, std::nullopt);
  require(launched->size == 1 || launched->size == num_ranks,
          "--expert-parallel={} is the number of ranks, but {} started {} processes (use {} of them)", num_ranks,
          name_of(launched->source), launched->size, num_ranks);
  return place_ranks(CommBackend::automatic, num_ranks, launched);
}

bool is_longrope(const RopeSpec& rope) { return rope.scaling && rope.scaling->rope_type == RopeType::longrope; }

/// What the texts of a model have in common.
class Generator {
 public:
  Generator(const GenerateOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        reader_(options.model),
        tokenizer_(tokenizer),
        stops_(generation_ends(tokenizer_in(options.model).parent_path())),
        sampler_(options.sampling),
        note_(reader_.note()) {
    if (const std::string dropless = note_of_capacity(read_capacity_factor(options.model)); !dropless.empty())
      note_ += (note_.empty() ? "" : "; ") + dropless;
    require_divided_experts(model(), options.expert_parallel);
    require_embeddings(tokenizer_, model().vocab_size, fmt::format("the tokenizer of '{}'", options.model.string()),
                       "use the tokenizer that the model was trained with");
    stops_.insert(stops_.end(), options.stop_tokens.begin(), options.stop_tokens.end());
    if (const auto end = tokenizer_.end_of_document()) stops_.push_back(*end);
  }

  [[nodiscard]] DecoderRoom room_for(const std::vector<std::int32_t>& prompt) const {
    const std::int64_t count = std::ssize(prompt), most = model().max_position_embeddings;
    for (const std::int32_t id : prompt)
      require(id < model().vocab_size, "the prompt has token {} ({}), but the model's vocab_size is {}; leave it out",
              id, printable(tokenizer_.bytes(id), 40), model().vocab_size);
    require(count < most, "the prompt has {} tokens, which leaves no room in the model's {} positions", count, most);
    return {.num_prompt_tokens = count, .num_positions = count + std::min(most - count, options_.max_new_tokens)};
  }

  /// A loaded decoder with room; after the first one with more than is needed now, as conversations grow. But longrope
  /// has other frequencies for more positions.
  void load(std::unique_ptr<Decoder>& decoder, DecoderRoom room, RankDevice& device) const {
    if (decoder && decoder->has_room(room) && !std::ranges::any_of(model().ropes(), is_longrope)) return;
    if (decoder && !std::ranges::any_of(model().ropes(), is_longrope))
      room.num_prompt_tokens = room.num_positions = std::min(model().max_position_embeddings, 2 * room.num_positions);
    decoder.reset();
    decoder = std::make_unique<Decoder>(model(), room, device);
    decoder->load(reader_);
  }

  /// Rank 0 draws the tokens.
  [[nodiscard]] Generation answer(const std::vector<std::int32_t>& prompt, Decoder& decoder, Mesh& host) {
    Generation generation = {
        .text = {}, .tokens = {}, .num_prompt_tokens = std::ssize(prompt), .device = {}, .note = note_};
    const std::int64_t most = room_for(prompt).num_positions - generation.num_prompt_tokens;
    decoder.restart();
    for (std::vector<std::int32_t> tokens = prompt; std::ssize(generation.tokens) < most;) {
      std::vector<double> logits = decoder.decode(tokens);
      logits.resize(static_cast<std::size_t>(std::min(tokenizer_.vocab_size(), model().vocab_size)));
      std::int32_t token = host.rank() == 0 ? sampler_.draw(logits) : 0;
      share(host, {&token, 1});
      generation.is_ended = std::ranges::count(stops_, token) > 0;
      if (generation.is_ended) break;
      generation.text += tokenizer_.bytes(token);
      generation.tokens.push_back(token);
      if (options_.on_text && host.rank() == 0) options_.on_text(tokenizer_.bytes(token));
      tokens = {token};
    }
    return generation;
  }

 private:
  [[nodiscard]] const ModelSpec& model() const { return reader_.spec(); }

  const GenerateOptions& options_;
  ModelReader reader_;
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> stops_;
  Sampler sampler_;
  std::string note_;
};

}  // namespace

void generate_each(const GenerateOptions& options, const Tokenizer& tokenizer, const NextPrompt& next,
                   const std::function<void(const Generation&)>& answered) {
  validate(options.sampling);
  require(options.max_new_tokens >= 1, "max_new_tokens = {} is below 1 (use 1)", options.max_new_tokens);
  Generator generator(options, tokenizer);
  const RankPlacement placement = place_expert_ranks(options.expert_parallel);
  const std::unique_ptr<Backend> backend = open_backend(options.device, "--device");
  run_ranks(generation_mesh(options.expert_parallel), placement, options.timeout_seconds, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device =
        backend->open(host, {.num_threads = claim_cores(RunConfig(), host).num_threads,
                             .timeout_seconds = options.timeout_seconds,
                             .products = {.is_of_processes = placement.transport == Transport::mpi}});
    if (options.expert_parallel > 1) device->mesh().connect({expert_group(options.expert_parallel)});
    std::unique_ptr<Decoder> decoder;
    while (const auto prompt = shared_prompt(host, next)) {
      generator.load(decoder, generator.room_for(*prompt), *device);
      Generation generation = generator.answer(*prompt, *decoder, host);
      generation.device = device->description();
      if (host.rank() == 0) answered(generation);
    }
  });
}

std::optional<Generation> generate(const GenerateOptions& options) {
  (void)read_model_spec(options.model);  // what is wrong with the model comes before what is wrong with its tokenizer
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_in(options.model).string());
  std::optional<Generation> generation;
  const auto next = [&]() -> std::optional<std::vector<std::int32_t>> {
    if (generation) return std::nullopt;
    return prompt_tokens(tokenizer, options);
  };
  generate_each(options, tokenizer, next, [&](const Generation& answer) { generation = answer; });
  return generation;
}

}  // namespace echelon
