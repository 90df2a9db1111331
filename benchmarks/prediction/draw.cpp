#include "prediction/draw.h"

#include <fmt/format.h>

namespace echelon {
namespace {

class Draw {
 public:
  explicit Draw(std::mt19937_64& numbers) : numbers_(numbers) {}

  DrawnLayout layout(LayoutKind kind) {
    const bool has_experts = kind == LayoutKind::experts,
               has_context = kind == LayoutKind::context || kind == LayoutKind::documents;
    has_experts ? draw_mixture() : draw_model();
    draw_axes();
    if (has_experts) draw_experts();
    if (has_context) draw_context(kind == LayoutKind::documents);
    has_context ? draw_batch({512, 1024}, {1, 2}) : draw_batch({64, 128, 256, 512}, {1, 2, 4});
    return std::move(layout_);
  }

 private:
  // The same on every library, unlike std::uniform_int_distribution.
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[numbers_() % choices.size()];
  }
  bool happens(int one_in) { return numbers_() % static_cast<unsigned>(one_in) == 0; }

  template <class T>
  void set(std::string_view key, const T& value) {
    layout_.arguments.push_back(fmt::format("--{}={}", key, value));
  }
  void say(const std::string& words) { layout_.name += (layout_.name.empty() ? "" : ", ") + words; }

  void draw_model() {
    const bool is_gpt2 = happens(2);
    const int width = one_of({128, 192, 256, 384, 512}), layers = one_of({2, 4, 6, 8}),
              heads = width / one_of({32, 64}), vocab = one_of({1024, 4096, 8192});
    const std::string dtype = one_of<const char*>({"float32", "float32", "bfloat16"});
    set("model.model_type", is_gpt2 ? "gpt2" : "llama");
    set("model.hidden_size", width);
    set("model.num_hidden_layers", layers);
    set("model.num_attention_heads", heads);
    if (!is_gpt2) set("model.num_key_value_heads", heads % 2 == 0 && happens(2) ? heads / 2 : heads);
    set("model.intermediate_size", is_gpt2 ? 4 * width : width * 8 / 3 / 32 * 32);
    set("model.vocab_size", vocab);
    set("model.max_position_embeddings", 1024);
    set("training.dtype", dtype);
    say(fmt::format("{} {}x{} V={} {}", is_gpt2 ? "gpt2" : "llama", layers, width, vocab, dtype));
  }

  void draw_mixture() {
    const int width = one_of({128, 256, 384}), layers = one_of({2, 4, 6}), heads = width / 64,
              experts = one_of({4, 8, 16}), choices = one_of({1, 2, 4}), features = one_of({128, 256, 512}),
              vocab = one_of({1024, 4096});
    const std::string dtype = one_of<const char*>({"float32", "float32", "bfloat16"});
    set("model.model_type", "mixtral");
    set("model.hidden_size", width);
    set("model.num_hidden_layers", layers);
    set("model.num_attention_heads", heads);
    set("model.num_key_value_heads", heads);
    set("model.intermediate_size", features);
    set("model.moe_intermediate_size", features);
    set("model.num_experts", experts);
    set("model.num_experts_per_tok", choices);
    set("model.vocab_size", vocab);
    set("model.max_position_embeddings", 1024);
    set("training.dtype", dtype);
    say(fmt::format("{} of {} experts of {}, {}x{} V={} {}", choices, experts, features, layers, width, vocab, dtype));
  }

  void draw_experts() {
    const int ep = one_of({1, 1, 2, 4});
    set("parallelism.expert_parallel_degree", ep);
    if (ep > 1) say(fmt::format("ep {}", ep));
  }

  void draw_context(bool has_documents) {
    const int cp = one_of({2, 2, 4}), u = cp / 2;
    const std::string method = one_of<const char*>({"ring", "all_gather", "ulysses", "ulysses_ring"}),
                      balancer = has_documents ? one_of<const char*>({"headtail", "per_document", "packed"})
                                               : one_of<const char*>({"headtail", "headtail", "striped", "none"});
    set("parallelism.context_parallel_degree", cp);
    set("parallelism.context_parallel_method", method);
    if (method == "ulysses_ring") set("parallelism.context_parallel_ulysses_degree", u);
    set("parallelism.context_parallel_load_balancer", balancer);
    layout_.num_ranks *= cp;
    say(fmt::format("times cp {} {} {}", cp, method, balancer));
    if (!has_documents) return;
    set("data.reset_attention_mask", true);
    say("documents");
  }

  void draw_axes() {
    const int replicate = one_of({1, 1, 1, 2}), shard = one_of({1, 1, 2, 4}), tp = one_of({1, 1, 2, 4});
    pp_ = one_of({1, 1, 2, 4});
    data_ranks_ = replicate * shard;
    layout_.num_ranks = data_ranks_ * tp * pp_;
    set("parallelism.data_parallel_replicate_degree", replicate);
    set("parallelism.data_parallel_shard_degree", shard);
    set("parallelism.tensor_parallel_degree", tp);
    set("parallelism.pipeline_parallel_degree", pp_);
    std::string words = fmt::format("{} ranks:", layout_.num_ranks);
    if (replicate > 1) words += fmt::format(" replicate {}", replicate);
    if (shard > 1) {
      const int level = one_of({1, 2, 3});
      set("parallelism.zero_level", level);
      words += fmt::format(" ZeRO-{} x {}", level, shard);
    }
    if (tp > 1) {
      const bool sequence = happens(2);
      set("parallelism.sequence_parallel", sequence);
      words += fmt::format(" tp{} {}", sequence ? "+sp" : "", tp);
    }
    if (pp_ > 1) {
      const std::string schedule = one_of<const char*>(
          {"GPipe", "1F1B", "Interleaved1F1B", "ZB-H1", "ZB-V", "InterleavedZeroBubble", "DualPipeV"});
      set("parallelism.pipeline_parallel_schedule", schedule);
      words += fmt::format(" {} {}", schedule, pp_);
    }
    say(words);
    const std::string recompute = one_of<const char*>({"none", "none", "selective", "full"});
    set("training.recompute", recompute);
    if (recompute != "none") say(recompute + " recomputation");
  }

  void draw_batch(std::initializer_list<int> lengths, std::initializer_list<int> sizes) {
    const int tokens = one_of(lengths), sequences = one_of(sizes), microbatches = pp_ * one_of({1, 2}) * one_of({1, 2});
    set("training.seq_len", tokens);
    set("training.micro_batch_size", sequences);
    set("training.global_batch_size", sequences * microbatches * data_ranks_);
    say(fmt::format("{} x {} x {}", microbatches, sequences, tokens));
  }

  std::mt19937_64& numbers_;
  DrawnLayout layout_;
  int pp_ = 1, data_ranks_ = 1;
};

}  // namespace

DrawnLayout draw_layout(std::mt19937_64& numbers, LayoutKind kind) { return Draw(numbers).layout(kind); }

}  // namespace echelon
