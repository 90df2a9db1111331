// Attention as graphs of cuDNN's, through its header-only frontend. cuDNN itself is loaded when a rank starts, and not
// linked: without it everything runs on our own kernels.
#include "cuda/ops/cudnn_attention.h"

#include "base/error.h"
#include "cuda/ops/attention_sizes.h"

#include "cuda/ops/cudnn_library.h"
#include "cuda/ops/unseen_rows.h"

#include <cudnn_frontend.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

// The frontend finds cuDNN's functions here.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace echelon::cuda {
namespace {

namespace fe = cudnn_frontend;

/// The operands' names in a graph.
enum Operand : std::int64_t { q = 1, k, v, out, lse, dout, dq, dk, dv };

/// The last of the queries and the first of the keys: each sees all of these, or those up to a diagonal that ends with
/// the last of both.
struct Seen {
  std::int64_t num_queries, num_keys;
  bool is_causal;
  auto operator<=>(const Seen&) const = default;
};

/// What a plan is made for. num_sequences: of one launch, with so many bytes of memory in addition to the operands.
struct PlanKey {
  bool is_backward;
  // kv_row: values from one key of a head to its next.
  std::int64_t room_bytes, num_sequences;
  Seen seen;
  std::int64_t Tq, Tk, H, num_kv_heads, kv_row, C;
  double scale;
  auto operator<=>(const PlanKey&) const = default;
};

/// Memory in addition to the operands.
struct Room {
  std::byte* begin;
  std::int64_t num_bytes;
};

using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;

class Plan {
 public:
  Plan(cudnnHandle_t handle, const PlanKey& key, bool deterministic) : key_(key) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    key.is_backward ? describe_backward(deterministic) : describe_forward();
    refusal_ = build(handle);
  }
  /// Why it does not run on this device, in the room; nothing if it does.
  [[nodiscard]] const std::optional<std::string>& refusal() const { return refusal_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return graph_.get_workspace_size(); }
  /// Nothing, or what cuDNN says.
  [[nodiscard]] std::optional<std::string> run(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& operands,
                                               void* workspace) {
    return words_of(graph_.execute(handle, operands, workspace));
  }

 private:
  using Dims = std::vector<std::int64_t>;
  [[nodiscard]] Dims query_dims() const { return {key_.num_sequences, key_.H, key_.seen.num_queries, key_.C}; }
  [[nodiscard]] Dims query_strides() const { return {key_.Tq * key_.H * key_.C, key_.C, key_.H * key_.C, 1}; }
  [[nodiscard]] Dims key_dims() const { return {key_.num_sequences, key_.num_kv_heads, key_.seen.num_keys, key_.C}; }
  [[nodiscard]] Dims key_strides() const { return {key_.Tk * key_.kv_row, key_.C, key_.kv_row, 1}; }
  [[nodiscard]] Dims row_dims() const { return {key_.num_sequences, key_.H, key_.seen.num_queries, 1}; }
  [[nodiscard]] Dims row_strides() const { return {key_.H * key_.Tq, key_.Tq, 1, 1}; }

  TensorAttributes input(Operand operand, const Dims& dims, const Dims& strides,
                         fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_uid(operand).set_dim(dims).set_stride(strides).set_data_type(type));
  }
  static void output(const TensorAttributes& tensor, Operand operand, const Dims& dims, const Dims& strides,
                     fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    tensor->set_output(true).set_uid(operand).set_dim(dims).set_stride(strides).set_data_type(type);
  }
  /// Query i sees the keys up to i + (num_keys - num_queries), or all.
  template <class Options>
  [[nodiscard]] Options options(const char* name) const {
    Options options;
    options.set_name(name).set_attn_scale(static_cast<float>(key_.scale));
    if (key_.seen.is_causal)
      options
          .set_diagonal_alignment(key_.seen.num_queries == key_.seen.num_keys ? fe::DiagonalAlignment_t::TOP_LEFT
                                                                              : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
          .set_diagonal_band_right_bound(0);
    return options;
  }

  /// Nothing, or what is wrong.
  [[nodiscard]] static std::optional<std::string> words_of(fe::error_t error) {
    if (error.is_good()) return std::nullopt;
    std::string words = error.get_message();
    return words.empty() ? "an error without a message" : words;
  }

  /// The first plan of the heuristics that gets by with the room.
  [[nodiscard]] std::optional<std::string> build(cudnnHandle_t handle) {
    if (auto words = words_of(graph_.validate())) return words;
    if (auto words = words_of(graph_.build_operation_graph(handle))) return words;
    if (auto words = words_of(graph_.create_execution_plans({fe::HeurMode_t::A}))) return words;
    graph_.deselect_workspace_greater_than(key_.room_bytes);
    if (auto words = words_of(graph_.check_support()))
      return fmt::format("{} (of plans with at most {} bytes of workspace)", *words, key_.room_bytes);
    if (auto words = words_of(graph_.build_plans())) return words;
    if (workspace_bytes() <= key_.room_bytes) return std::nullopt;
    return fmt::format("its plan needs {} bytes of workspace, and {} exist", workspace_bytes(), key_.room_bytes);
  }

  void describe_forward() {
    const TensorAttributes of_q = input(q, query_dims(), query_strides()), of_k = input(k, key_dims(), key_strides()),
                           of_v = input(v, key_dims(), key_strides());
    const auto [of_out, of_lse] =
        graph_.sdpa(of_q, of_k, of_v, options<fe::graph::SDPA_attributes>("attention").set_generate_stats(true));
    output(of_out, out, query_dims(), query_strides());
    output(of_lse, lse, row_dims(), row_strides(), fe::DataType_t::FLOAT);
  }
  void describe_backward(bool deterministic) {
    const TensorAttributes of_q = input(q, query_dims(), query_strides()), of_k = input(k, key_dims(), key_strides()),
                           of_v = input(v, key_dims(), key_strides()),
                           of_out = input(out, query_dims(), query_strides()),
                           of_dout = input(dout, query_dims(), query_strides()),
                           of_lse = input(lse, row_dims(), row_strides(), fe::DataType_t::FLOAT);
    const auto [of_dq, of_dk, of_dv] = graph_.sdpa_backward(
        of_q, of_k, of_v, of_out, of_dout, of_lse,
        options<fe::graph::SDPA_backward_attributes>("attention_backward").set_deterministic_algorithm(deterministic));
    output(of_dq, dq, query_dims(), query_strides());
    output(of_dk, dk, key_dims(), key_strides());
    output(of_dv, dv, key_dims(), key_strides());
  }

  PlanKey key_;
  fe::graph::Graph graph_;
  std::optional<std::string> refusal_;
};

class LoadedCudnn final : public CudnnAttention {
 public:
  LoadedCudnn(cudnnHandle_t handle, const CudnnOptions& options) : handle_(handle), options_(options) {}
  ~LoadedCudnn() override {
    plans_.clear();
    fe::detail::destroy_handle(handle_);
  }
  LoadedCudnn(const LoadedCudnn&) = delete;
  LoadedCudnn& operator=(const LoadedCudnn&) = delete;

  [[nodiscard]] CudnnAnswer attention(const AttentionArgs& args, cudaStream_t stream) override {
    const AttentionSizes sizes = sizes_of(args);
    const Seen seen = seen_of(args.mask, sizes);
    if (const std::string* refusal = refusal_of(args.mask, sizes, args.q.dtype)) return {.refusal = refusal};
    if (seen.is_causal && seen.num_keys < seen.num_queries) return {.refusal = &no_offset};
    const CudnnAnswer answer = run({key_of(sizes, seen, args.scale, false), own_room(), stream},
                                   {{q, args.q}, {k, args.k}, {v, args.v}, {out, args.out}, {lse, args.lse}}, sizes);
    if (answer.num_sequences > 0) fill_unseen(args, stream);
    return answer;
  }
  [[nodiscard]] CudnnAnswer attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream) override {
    const AttentionSizes sizes = sizes_of(args);
    const Seen seen = seen_of(args.mask, sizes);
    if (const std::string* refusal = refusal_of(args.mask, sizes, args.q.dtype)) return {.refusal = refusal};
    if (seen.is_causal && seen.num_queries != seen.num_keys) return {.refusal = &no_offset};
    // dk and dv of heads that no query head reads are zeros
    if (sizes.H / sizes.group != sizes.K) return {.refusal = &uneven_heads};
    const CudnnAnswer answer =
        run({key_of(sizes, seen, args.scale, true), larger(own_room(), room_in(args.scratch)), stream},
            {{q, args.q},
             {k, args.k},
             {v, args.v},
             {out, args.out},
             {lse, args.lse},
             {dout, args.dout},
             {dq, args.dq},
             {dk, args.dk},
             {dv, args.dv}},
            sizes);
    if (answer.num_sequences > 0) fill_unseen(args, stream);
    return answer;
  }
  [[nodiscard]] std::string name() const override {
    const std::size_t version = fe::detail::get_backend_version();  // 91300: 9.13.0
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

 private:
  struct NamedTensor {
    Operand name;
    Tensor tensor;
  };

  inline static const std::string other_dtype = "it is used for bfloat16 only", no_values = "there are no queries",
                                  other_ranges =
                                      "documents, windows and other ranges of keys are masked by our kernels only",
                                  no_offset = "its queries are not the last keys",
                                  uneven_heads = "its kv heads are not read by equally many query heads";

  /// Of a mask without ranges, or whose shape is known.
  [[nodiscard]] static Seen seen_of(const AttentionMask& mask, const AttentionSizes& sizes) {
    if (mask.shape.kind == MaskShape::Kind::ranges) return {sizes.Tq, sizes.Tk, true};
    return {sizes.Tq - mask.shape.first_query, mask.shape.end_key, mask.shape.kind == MaskShape::Kind::causal};
  }
  /// For both passes; null: none.
  [[nodiscard]] static const std::string* refusal_of(const AttentionMask& mask, const AttentionSizes& sizes,
                                                     DType dtype) {
    if (dtype != DType::bfloat16) return &other_dtype;
    if (sizes.B * sizes.Tq * sizes.H * sizes.C == 0) return &no_values;
    const bool has_ranges = sizes.begins != nullptr || sizes.ends != nullptr;
    if (has_ranges && mask.shape.kind == MaskShape::Kind::ranges) return &other_ranges;
    // cuDNN divides the heads evenly among kv heads, from the first on.
    if (sizes.first_head % sizes.group != 0 || sizes.H % sizes.group != 0) return &uneven_heads;
    return nullptr;
  }
  [[nodiscard]] static PlanKey key_of(const AttentionSizes& sizes, const Seen& seen, double scale, bool is_backward) {
    return {is_backward,       0,       sizes.B, seen, sizes.Tq, sizes.Tk, sizes.H, sizes.H / sizes.group,
            sizes.K * sizes.C, sizes.C, scale};
  }

  [[nodiscard]] Room own_room() const {
    return {options_.workspace.as<std::byte>(Workspace::most_bytes), Workspace::most_bytes};
  }
  /// Its part from an address on that is aligned as well as the workspace's; of one size for all scratch of a shape,
  /// whatever its address.
  [[nodiscard]] static Room room_in(const Tensor& scratch) {
    if (!scratch.exists()) return {nullptr, 0};
    constexpr std::uintptr_t alignment = 256;
    const std::uintptr_t skipped = -reinterpret_cast<std::uintptr_t>(scratch.data) % alignment;
    return {scratch.data + skipped, scratch.num_bytes() - static_cast<std::int64_t>(alignment)};
  }
  [[nodiscard]] static Room larger(const Room& a, const Room& b) { return a.num_bytes >= b.num_bytes ? a : b; }

  struct Call {
    PlanKey key;
    Room room;
    cudaStream_t stream;
  };

  /// What is known of a shape in a room.
  struct Choice {
    std::int64_t num_sequences = 0;  // at once; 0: refused
    std::string refusal = {};
  };

  [[nodiscard]] CudnnAnswer run(Call call, const std::vector<NamedTensor>& operands, const AttentionSizes& sizes) {
    PlanKey key = call.key;
    key.room_bytes = call.room.num_bytes;
    Choice& choice = choice_for(key);
    key.num_sequences = choice.num_sequences;
    if (key.num_sequences == 0) return {.refusal = &choice.refusal};
    require_set(fe::detail::set_stream(handle_, call.stream));
    for (std::int64_t b = 0; b < sizes.B; b += key.num_sequences) {
      std::unordered_map<std::int64_t, void*> addresses;
      for (const auto& [name, tensor] : operands) {
        const bool has_kv_heads = name == k || name == v || name == dk || name == dv;
        const std::int64_t first_query = sizes.Tq - key.seen.num_queries,
                           first = has_kv_heads  ? sizes.first_head / sizes.group * sizes.C
                                   : name == lse ? first_query
                                                 : first_query * sizes.H * sizes.C;
        addresses[name] = tensor.data + (tensor.num_elements() / sizes.B * b + first) * size_of(tensor.dtype);
      }
      const auto words = plans_.at(key)->run(handle_, addresses, call.room.begin);
      if (!words) continue;
      if (b > 0)
        throw Failure(fmt::format("cuDNN computed the attention of some sequences and not of others: {}", *words));
      choice = {.refusal = *words};
      return {.refusal = &choice.refusal};
    }
    return {.num_sequences = key.num_sequences};
  }
  static void require_set(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS)
      throw Failure(fmt::format("cuDNN does not take the stream ({})", fe::detail::get_error_string(status)));
  }

  /// For as many sequences at once as the room allows.
  [[nodiscard]] Choice& choice_for(const PlanKey& all) {
    if (const auto known = chosen_.find(all); known != chosen_.end()) return known->second;
    Choice& choice = chosen_[all];
    if (make_plan(all, choice.refusal))
      choice.num_sequences = all.num_sequences;
    else if (all.num_sequences > 1)
      choose_fewer(all, choice);
    return choice;
  }

  /// One sequence's plan tells how many fit, since what a plan needs grows with them. Few plans are tried: each costs a
  /// while.
  void choose_fewer(const PlanKey& all, Choice& choice) {
    PlanKey key = all;
    key.num_sequences = 1;
    std::string words;
    if (!make_plan(key, words)) return;
    std::int64_t most = all.num_sequences / 2;
    while (all.num_sequences % most != 0 || most * plans_.at(key)->workspace_bytes() > all.room_bytes) --most;
    if (options_.refuses_slow_plans && is_slow(all, most)) {
      choice.refusal = fmt::format("{}; {} of {} sequences at once would leave the GPU idle", choice.refusal, most,
                                   all.num_sequences);
      return;
    }
    key.num_sequences = most;
    choice.num_sequences = most == 1 || make_plan(key, words) ? most : 1;
  }
  /// Too few blocks for two on each multiprocessor, in each of the launches.
  [[nodiscard]] bool is_slow(const PlanKey& key, std::int64_t num_sequences) const {
    constexpr std::int64_t tile = 128;
    return num_sequences * key.H * ((key.seen.num_queries + tile - 1) / tile) < 2 * options_.num_multiprocessors;
  }

  /// False if there is none, which `refusal` then explains.
  [[nodiscard]] bool make_plan(const PlanKey& key, std::string& refusal) {
    try {
      auto plan = std::make_unique<Plan>(handle_, key, options_.deterministic);
      if (plan->refusal()) return refusal = *plan->refusal(), false;
      plans_[key] = std::move(plan);
      return true;
    } catch (const std::exception& exception) {  // the frontend throws where a function of a library is missing
      refusal = exception.what();
      return false;
    }
  }

  cudnnHandle_t handle_;
  CudnnOptions options_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  std::map<PlanKey, Choice> chosen_;
};

// The frontend would prefer CUDA 12's runtime where both are found. Deterministic gradients keep 2 bytes for each query
// and key of every head where that fits into the workspace. Beyond this limit the frontend lets the engine of Hopper
// order its sums instead, from cuDNN 9.25 on, in linear memory.
bool tell_frontend(void* library) {
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13", 0);
  setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", fmt::format("{}", Workspace::most_bytes).c_str(), 0);
  fe::cudnn_dlhandle = library;
  return true;
}

}  // namespace

std::unique_ptr<CudnnAttention> find_cudnn_attention(const CudnnOptions& options, std::string& reason) {
  void* const library = cudnn_library();
  if (library == nullptr) {
    reason = "libcudnn.so.9 is not found (LD_LIBRARY_PATH)";
    return nullptr;
  }
  [[maybe_unused]] static const bool is_told = tell_frontend(library);  // once: ranks are threads
  try {
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status == CUDNN_STATUS_SUCCESS) return std::make_unique<LoadedCudnn>(handle, options);
    reason = fmt::format("cuDNN does not start ({})", fe::detail::get_error_string(status));
  } catch (const std::exception& exception) {
    reason = fmt::format("cuDNN does not start ({})", exception.what());
  }
  return nullptr;
}

}  // namespace echelon::cuda
