#include "resume/layouts.h"

#include "spec/config/config_reader.h"

namespace echelon::testing {

const std::vector<NamedLayout>& layouts() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"replicas-2", [](ParallelConfig& p) { p.data_parallel_replicate_degree = 2; }},
      {"zero1-4", [](ParallelConfig& p) { p.data_parallel_shard_degree = 4; }},
      {"zero2-3",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 3;
         p.zero_level = 2;
       }},
      {"zero3-4",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 4;
         p.zero_level = 3;
       }},
      {"hsdp-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_replicate_degree = p.data_parallel_shard_degree = 2;
         p.zero_level = 3;
       }},
      {"tp-sp-4",
       [](ParallelConfig& p) {
         p.tensor_parallel_degree = 4;
         p.sequence_parallel = true;
       }},
      {"pp-3", [](ParallelConfig& p) { p.pipeline_parallel_degree = 3; }},
      {"interleaved-2x2",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.virtual_stages = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::interleaved_one_f_one_b;
       }},
      {"dualpipev",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::dualpipe_v;
       }},
      {"ring-3", [](ParallelConfig& p) { p.context_parallel_degree = 3; }},
      {"gathered-zero3-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = 2;
         p.zero_level = 3;
         p.context_parallel_method = ContextMethod::all_gather;
         p.context_parallel_load_balancer = LoadBalancer::striped;
       }},
      {"ulysses-pp-2x2",
       [](ParallelConfig& p) {
         p.context_parallel_degree = p.pipeline_parallel_degree = 2;
         p.context_parallel_method = ContextMethod::ulysses;
       }},
      {"mpi-2x2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.tensor_parallel_degree = p.pipeline_parallel_degree = 2;
         p.order = parse_axis_order("order", {"tp-cp-ep-dp-pp"});
       },
       Place::processes},
      {"emulated-gpu", [](ParallelConfig&) {}, Place::emulated_gpu},
  };
  return all;
}

const std::vector<NamedLayout>& layouts_of_documents() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"packed-4",
       [](ParallelConfig& p) {
         p.context_parallel_degree = 4;
         p.context_parallel_load_balancer = LoadBalancer::packed;
       }},
      {"zero2-packed-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = p.zero_level = 2;
         p.context_parallel_load_balancer = LoadBalancer::packed;
         p.context_parallel_method = ContextMethod::all_gather;
       }},
      {"pp-per-document-2x3",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.context_parallel_degree = 3;
         p.context_parallel_load_balancer = LoadBalancer::per_document;
       }},
      {"packed-ulysses-ring-4",
       [](ParallelConfig& p) {
         p.context_parallel_degree = 4;
         p.context_parallel_ulysses_degree = 2;
         p.context_parallel_method = ContextMethod::ulysses_ring;
         p.context_parallel_load_balancer = LoadBalancer::packed;
       }},
  };
  return all;
}

const std::vector<NamedLayout>& layouts_of_experts() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"zero3-tp-3x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.zero_level = 3;
         p.tensor_parallel_degree = 2;
       }},
      {"zero3-ep-4x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 4;
         p.expert_parallel_degree = 2;
         p.zero_level = 3;
       }},
      {"zero3-ep-etp-4x2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 4;
         p.expert_parallel_degree = p.expert_tensor_parallel_degree = 2;
         p.zero_level = 3;
       }},
      {"tp-sp-ep-2x6",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 3;
         p.tensor_parallel_degree = 2;
         p.expert_parallel_degree = 6;
         p.sequence_parallel = true;
       }},
      {"pp-tp-sp-2x4",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.tensor_parallel_degree = 4;
         p.sequence_parallel = true;
       }},
      {"hsdp-cp-ep-2x2x3x6",
       [](ParallelConfig& p) {
         p.data_parallel_replicate_degree = p.data_parallel_shard_degree = 2;
         p.zero_level = p.context_parallel_degree = 3;
         p.expert_parallel_degree = 6;
       }},
      {"interleaved-zero2-tp-sp-hierarchical-2x3x2x6",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = p.virtual_stages = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::interleaved_one_f_one_b;
         p.data_parallel_shard_degree = 3;
         p.tensor_parallel_degree = p.zero_level = p.ranks_per_node = 2;
         p.sequence_parallel = true;
         p.expert_parallel_degree = 6;
         p.expert_dispatch = ExpertDispatch::hierarchical;
       }},
      {"cp-all-gather-2x2x4",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = p.zero_level = 2;
         p.expert_parallel_degree = 2;
         p.expert_dispatch = ExpertDispatch::all_gather;
       }},
      {"zbv-ep-etp-2x6x3x2",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = p.expert_tensor_parallel_degree = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::zb_v;
         p.data_parallel_shard_degree = 6;
         p.expert_parallel_degree = 3;
       }},
  };
  return all;
}

const std::vector<NamedLayout>& layouts_of_latents() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"zero2-tp-sp-ep-3x2x6",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 3;
         p.tensor_parallel_degree = p.zero_level = 2;
         p.expert_parallel_degree = 6;
         p.sequence_parallel = true;
       }},
      {"dualpipev-ep-2x2",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = p.data_parallel_shard_degree = p.expert_parallel_degree = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::dualpipe_v;
       }},
      {"zero3-cp-ep-2x2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = p.expert_parallel_degree = 2;
         p.zero_level = 3;
       }},
  };
  return all;
}

const std::vector<NamedLayout>& layouts_of_adapters() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"zero3-tp-sp-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.tensor_parallel_degree = 2;
         p.zero_level = 3;
         p.sequence_parallel = true;
       }},
      {"pp-tp-2x4",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.tensor_parallel_degree = 4;
       }},
      {"zero2-packed-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = p.zero_level = 2;
         p.context_parallel_load_balancer = LoadBalancer::packed;
       }},
  };
  return all;
}

}  // namespace echelon::testing
