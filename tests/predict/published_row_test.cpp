// Rows of tables of published runs: what becomes of their words, and that a row and the config that it stands for are
// timed alike.
#include "predict/published/published_row.h"
#include "predict/published/row_assumptions.h"
#include "predict/published/software_memory.h"

#include "base/error.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace echelon {
namespace {

// Configurations from: Narayanan et al. 2021 (arXiv:2104.04473), table 1; Korthikanti et al. 2022 (arXiv:2205.05198),
// table 5; Megatron-LM, images/tables.tex of 2020; BigScience, chronicles of 176B; MosaicML llm-foundry, benchmarking
// README; fms-fsdp README; torchtitan, benchmarks; vTrain, ground truth; Qi et al. 2023 (arXiv:2401.10241), tables 3
// and 4.
constexpr std::string_view rows_text = R"csv(
id,params_b,layers,hidden,heads,kv_heads,ffn,mlp,vocab,seq,gpu,gpu_mem_gb,gpus,intra,inter_per_node,tp,pp,vpp,dp,mbs,gbs,sp,recompute,zero,precision,flash_attn,schedule,software,async_tp
sc21-t1-1.7B,1.7,24,2304,24,24,9216,gelu4h,51200,2048,A100-80GB-SXM,80,32,NVLink3+NVSwitch 300GB/s/dir,8x200Gb HDR IB,1,1,1,32,16,512,0,"full(uniform,1)",0,fp16,0,1F1B,Megatron-LM 2021,0
sc21-t1-18B,18.4,40,6144,48,48,24576,gelu4h,51200,2048,A100-80GB-SXM,80,256,NVLink3+NVSwitch 300GB/s/dir,8x200Gb HDR IB,8,1,1,32,8,1024,0,"full(uniform,1)",0,fp16,0,1F1B,Megatron-LM 2021,0
sc21-t1-145B,145.6,80,12288,96,96,49152,gelu4h,51200,2048,A100-80GB-SXM,80,1536,NVLink3+NVSwitch 300GB/s/dir,8x200Gb HDR IB,8,8,2,24,2,2304,0,"full(uniform,1)",0,fp16,0,interleaved-1F1B,Megatron-LM 2021,0
kort-t5-22B-full,22,48,6144,64,64,24576,gelu4h,51200,2048,A100-80GB-SXM,80,8,NVLink3+NVSwitch 300GB/s/dir,8x200Gb HDR IB,8,1,1,1,4,4,0,full,0,fp16,0,1F1B,Megatron-LM 2022,0
kort-t5-175B-sel,175,96,12288,96,96,49152,gelu4h,51200,2048,A100-80GB-SXM,80,64,NVLink3+NVSwitch 300GB/s/dir,8x200Gb HDR IB,8,8,3,1,1,64,1,selective(attn),0,fp16,0,interleaved-1F1B,Megatron-LM 2022,0
mlm2020-A100-2B-2,2.03,30,2304,18,18,9216,gelu4h,51200,1024,"A100-40GB-SXM (DGX-A100, 2020)",40,2,NVLink3 300GB/s/dir,8x200Gb HDR IB,2,1,1,1,16,16,0,full,0,fp16,0,none,Megatron-LM v1 2020,0
bloom-036,181.0,72,14336,64,64,57344,gelu4h,250880,2048,A100-80GB-SXM,80,384,NVLink3 (8 GPU node),4x100Gb Omni-Path,8,12,1,4,4,2048,0,full (checkpoint-activations),1,fp16,0,1F1B,Megatron-DeepSpeed (BigScience) Feb 2022,0
bloom-085,181.0,72,14336,64,64,57344,gelu4h,250880,2048,A100-80GB-SXM,80,384,NVLink3 (8 GPU node),4x100Gb Omni-Path,4,12,1,8,2,2048,0,full (checkpoint-activations),1,fp16,0,1F1B,Megatron-DeepSpeed (BigScience) Feb 2022,0
mpt-033,12.854,40,5120,40,40,20480,gelu4h,50368,2048,H100-80GB,80,8,NVLink4,8x400Gb (3200Gb),1,1,1,8,2,16,0,none,3,amp_bf16 DEFAULT,1,none,Composer/FSDP (llm-foundry),0
mpt-015,2.652,32,2560,20,20,10240,gelu4h,50368,2048,H100-80GB,80,128,NVLink4,8x400Gb (3200Gb),1,1,1,128,8,1024,0,none,2,amp_bf16 DEFAULT,1,none,Composer/FSDP (llm-foundry),0
mpt-144,12.864,40,5120,40,40,20480,gelu4h,50368,4096,A100-40GB,40,8,NVLink3,1600Gb RoCE,1,1,1,8,2,256,0,full,3,bf16 PURE,1,none,Composer/FSDP (llm-foundry),0
mpt-085,13.011,40,5120,40,40,20480,gelu4h,50368,32768,A100-80GB,80,8,NVLink3,1600Gb RoCE,1,1,1,8,1,24,0,full,3,amp_bf16 DEFAULT,1,none,Composer/FSDP (llm-foundry),0
mpt-073,2.652,32,2560,20,20,10240,gelu4h,50368,2048,H100-80GB,80,8,NVLink4,8x400Gb (3200Gb),1,1,1,8,10,480,0,none,3,amp_fp8 DEFAULT,1,none,Composer/FSDP (llm-foundry),0
fms-7b-H100,6.74,32,4096,32,32,11008,swiglu,32000,4096,H100-80GB-SXM,80,96,NVLink,800Gb total,1,1,1,96,2,192,0,none,hsdp,bf16,1,none,PyTorch FSDP1 + compile (IBM),0
titan-8b-8-eager,8.03,32,4096,32,8,14336,swiglu,128256,8192,H100-96GB-HBM2e 500W,96,8,NVLink4,8x400Gb RDMA,1,1,1,8,2,16,0,selective,3,bf16,1,none,TorchTitan,0
titan-8b-64-bf16-async,8.03,32,4096,32,8,14336,swiglu,128256,8192,H100-96GB-HBM2e 500W,96,64,NVLink4,8x400Gb RDMA,8,1,1,8,12,96,1,selective(per-op),3,bf16,1,none,TorchTitan compile,1
titan-8b-h200-64,8.03,32,4096,32,8,14336,swiglu,128256,8192,H200-141GB-SXM,141,64,NVLink4,8x400Gb CX-7,1,1,1,64,2,128,0,selective,3,fp8,1,none,TorchTitan compile,0
vtrain-m007,3.6,30,3072,32,32,12288,gelu4h,50257,2048,A100-80GB-SXM,80,64,"NVLink3, 150GB/s effective in vTrain config",800Gb/s (vTrain config),2,1,1,32,2,512,0,full,0,fp16,0,1F1B,Megatron-DeepSpeed,0
zb-1.5B-1F1B-m24,1.5,22,2304,24,24,9216,gelu4h,,1024,A100-80GB-SXM,80,8,NVLink3,RoCE RDMA,1,8,1,1,6,144,0,none,0,bf16?,,1F1B,Megatron-LM fork (sail-sg),0
zb-1.5B-1F1B-I-m24,1.5,22,2304,24,24,9216,gelu4h,,1024,A100-80GB-SXM,80,8,NVLink3,RoCE RDMA,1,8,3,1,6,144,0,none,0,bf16?,,1F1B-I,Megatron-LM fork (sail-sg),0
zb-1.5B-ZB-1p-m24,1.5,22,2304,24,24,9216,gelu4h,,1024,A100-80GB-SXM,80,8,NVLink3,RoCE RDMA,1,8,1,1,6,144,0,none,0,bf16?,,ZB-1p,Megatron-LM fork (sail-sg),0
)csv";

std::vector<CsvRow> rows() {
  static const std::vector<CsvRow> all = parse_csv(rows_text.substr(1), "rows");
  return all;
}

CsvRow row_called(std::string_view id) {
  for (const CsvRow& row : rows())
    if (row.at("id") == id) return row;
  throw Error("no such row");
}

using Fields = std::map<std::string, std::string>;

CsvRow row_with(std::string_view id, const Fields& fields) {
  CsvRow row = row_called(id);
  for (const auto& [column, value] : fields) row.fields[column] = value;
  return row;
}
DescribedRun run_of(std::string_view id, const Fields& fields) { return described_run(row_with(id, fields)); }

double seconds_of(const RunConfig& config, const MachineSpec& machine, const SoftwareProfile& profile) {
  return simulate_software(Blueprint(config), machine, {.profile = profile}).step_seconds;
}

TEST(PublishedRows, AreTimedAsTheConfigsTheyStandFor) {
  const std::string path = scratch_folder() + "row.toml";
  ASSERT_GE(rows().size(), 20U);
  for (const CsvRow& row : rows()) {
    SCOPED_TRACE(row.at("id"));
    const DescribedRun run = described_run(row);
    std::ofstream(path) << to_toml(run.config);
    const RunConfig config = read_run_config({.path = path, .arguments = {}, .read_model = {}});
    EXPECT_EQ(config, run.config);
    const MachineSpec machine = parse_machine(to_toml(run.machine), "row");
    const SoftwareProfile profile = software_profile(run.profile.name);
    const double seconds = seconds_of(run.config, run.machine, run.profile);
    EXPECT_GT(seconds, 0);
    EXPECT_EQ(seconds_of(config, machine, profile), seconds);
  }
  std::filesystem::remove(path);
}

TEST(PublishedRows, WordsOfNetworksAndGpus) {
  const auto node = [](ClusterWords words) { return described_machine(words).nodes.front(); };
  const auto gbit = [&](const char* words) {
    const NodeSpec each = node({"A100-80GB", "80", "NVLink3", words});
    return static_cast<double>(each.num_nics) * each.nic_bandwidth * 8e-9;
  };
  EXPECT_NEAR(gbit("8x200Gb HDR IB"), 1600, 1e-6);
  EXPECT_NEAR(gbit("1600Gb RoCE"), 1600, 1e-6);
  EXPECT_NEAR(gbit("4x100Gb Omni-Path"), 400, 1e-6);
  EXPECT_NEAR(gbit("800Gb/s (measured)"), 800, 1e-6);
  EXPECT_NEAR(gbit("1.6Tb"), 1600, 1e-6);
  EXPECT_NEAR(gbit(""), 1600, 1e-6);  // of the vendor's own systems
  EXPECT_EQ(node({"A100-40GB", "40", "", ""}).device.memory_bandwidth, 1.555e12);
  EXPECT_EQ(node({"H800", "80", "", ""}).link.bandwidth, 200e9);
  const auto rack = [&](const char* network, std::int64_t num_gpus) {
    const NodeSpec each = node({"GB200", "192", "NVLink5 NVL72", network, num_gpus});
    return std::pair(each.num_devices, each.num_nics);
  };
  EXPECT_EQ(rack("8x400Gb", 0), std::pair(72L, 8L));
  EXPECT_EQ(rack("", 0), std::pair(72L, 72L));
  EXPECT_EQ(rack("", 144), std::pair(72L, 72L));
  EXPECT_EQ(rack("", 256), std::pair(64L, 64L));  // eight of each rack stay idle
  EXPECT_EQ(rack("", 36), std::pair(72L, 72L));
  EXPECT_EQ(rack("", 97), std::pair(72L, 72L));  // of a prime number each rack could give one alone
  EXPECT_EQ(rack("1x400Gb", 256), std::pair(64L, 1L));
  EXPECT_EQ(node({"H100 PCIe", "80", "NVLink4", ""}).link.bandwidth, 64e9);
  EXPECT_EQ(node({"GB200 NVL72", "", "", "", 72}).num_devices, 72);
  EXPECT_EQ(node({"something with V100s", "", "NVLink2", ""}).link.bandwidth, 150e9);
  EXPECT_THROW((void)described_machine({"TPUv4", "", "", ""}), Error);
  EXPECT_THROW((void)described_machine({"h1000", "", "", ""}), Error);

  // What drivers call GPUs, with the dense bfloat16 of NVIDIA's data sheets.
  const auto tflops = [&](const char* gpu) {
    return node({gpu, "", "", ""}).device.formats.at("bfloat16").peak_flops / 1e12;
  };
  EXPECT_NEAR(tflops("NVIDIA H100 80GB HBM3"), 989.4, 1e-9);
  EXPECT_NEAR(tflops("NVIDIA H200"), 989.4, 1e-9);
  EXPECT_NEAR(tflops("NVIDIA H100 PCIe"), 756, 1e-9);
  EXPECT_NEAR(tflops("NVIDIA H100 NVL"), 835.5, 1e-9);
  EXPECT_NEAR(tflops("NVIDIA A100-SXM4-40GB"), 312, 1e-9);
  EXPECT_THROW((void)node({"NVIDIA RTX PRO 6000 Blackwell Server Edition", "", "", ""}), Error);
}

TEST(PublishedRows, WordsOfSoftware) {
  const auto name = [](SoftwareWords words) { return described_software(words).name; };
  EXPECT_EQ(name({"Megatron-LM 2021", "fp16", "0", "0", "0"}), "megatron-2021+unfused");
  EXPECT_EQ(name({"Composer/FSDP (llm-foundry)", "amp_fp8 DEFAULT", "1", "0", "3"}), "llm-foundry+fp8+flash");
  EXPECT_EQ(name({"TorchTitan compile", "bf16", "1", "1", "3"}), "torchtitan-compile+flash+async-tp");
  EXPECT_EQ(name({"Megatron-DeepSpeed (BigScience) Feb 2022", "fp16", "0", "", "1"}), "bloom+unfused");
  EXPECT_EQ(name({"a framework of tomorrow", "bf16", "", "", "3"}), "fsdp");
  EXPECT_EQ(name({"zero-bubble", "bf16", "1", "", "1"}), "zero-bubble+flash");
  EXPECT_EQ(name({"Torchtitan-compile+async-tp", "fp8", "", "", "3"}), "torchtitan-compile+async-tp+fp8");
  EXPECT_EQ(name({"NeMo/Megatron-Core 2025", "fp8", "1", "0", "1", "", "swiglu"}),
            "megatron-core+fp8+flash+async-tp+fused-loss");
  EXPECT_EQ(name({"NeMo/Megatron-Core 2025", "bf16", "1", "0", "1", "", "gelu4h"}),
            "megatron-core+flash+async-tp+fused-loss+dropout");
  const auto of_release = [&](const char* source) {
    return name({"TorchTitan compile", "bf16", "1", "", "3", source});
  };
  EXPECT_EQ(of_release("benchmarks/llama3_h100_202412_torchtitan.md"), "torchtitan-compile+flash");
  EXPECT_EQ(of_release("benchmarks/llama3-8b_h200_202506_x.md"), "torchtitan-compile+flash+compiled-loss");
  EXPECT_EQ(of_release("benchmarks/asyncTP_llama3_h100_2025-06.md (commit 20b5bcd)"),
            "torchtitan-compile+flash+compiled-loss");
  EXPECT_EQ(of_release("commit 202"), "torchtitan-compile+flash");
}

/// Llama 3.1 8B on 8 GPUs with cp 2, as NeMo runs it.
DescribedRun nemo_run() {
  return run_of("titan-8b-8-eager", {{"software", "NeMo/Megatron-Core 2025"},
                                     {"gpu", "H100-80GB-SXM"},
                                     {"cp", "2"},
                                     {"dp", "4"},
                                     {"mbs", "1"},
                                     {"gbs", "128"},
                                     {"recompute", ""},
                                     {"zero", "1"}});
}

/// NVIDIA/dgxc-benchmarking v25.04, llama3.1/README.md prints both of Llama 3.1 8B on 8 GPUs with cp 2: gradients have
/// 16 bits (grad_reduce_in_fp32 is false in the recipe).
TEST(PublishedRows, NemoNeedsTheMemoryThatItPrints) {
  const DescribedRun run = nemo_run();
  const Simulation simulation = simulate_software(Blueprint(run.config), run.machine, {.profile = run.profile});
  const PredictedMemory& memory = simulation.memory.front();
  std::int64_t kept = 0;
  for (const MemoryCategory category :
       {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::master_weights, MemoryCategory::moments})
    kept += memory.category_bytes.at(category);
  EXPECT_NEAR(static_cast<double>(kept) / 44271689728, 1, 0.005);
  EXPECT_NEAR(static_cast<double>(memory.arena_bytes) / 70833405952, 1, 0.04);
}

// Of 8,191 tokens on two ranks one has 4,095, and a row that is padding.
TEST(PublishedRows, HaveRowsThatArePaddingInACategory) {
  const auto memory_of = [](std::int64_t T) {
    DescribedRun run = nemo_run();
    run.config.training.seq_len = T;
    return simulate_software(Blueprint(run.config), run.machine, {.profile = run.profile}).memory.front();
  };
  using enum MemoryCategory;
  const PredictedMemory more = memory_of(8191), fewer = memory_of(8190);
  EXPECT_EQ(fewer.category_bytes.at(padding_rows), 0);
  EXPECT_EQ(more.category_bytes.at(activations), fewer.category_bytes.at(activations));
  EXPECT_EQ(more.category_bytes.at(boundaries), fewer.category_bytes.at(boundaries));
  EXPECT_GT(more.category_bytes.at(padding_rows), fewer.category_bytes.at(activations) / 4095);
}

TEST(PublishedRows, WhatIsNotSaidIsWhatTheSoftwareDoes) {
  const auto config_of = [](const char* id, const Fields& fields) { return run_of(id, fields).config; };
  // torchtitan makes as many microbatches as there are stages; others take sequence after sequence.
  const Fields pipeline = {{"pp", "4"}, {"dp", "2"}, {"gpus", "64"}, {"mbs", ""}, {"gbs", "64"}};
  EXPECT_EQ(config_of("titan-8b-64-bf16-async", pipeline).num_microbatches(), 4);
  EXPECT_EQ(config_of("titan-8b-64-bf16-async", pipeline).parallelism.reshard_after_forward,
            ReshardAfterForward::never);
  EXPECT_EQ(config_of("bloom-036", {{"mbs", ""}}).training.micro_batch_size, 1);
  EXPECT_EQ(config_of("bloom-036", {{"zero", "2"}}).parallelism.zero_level, 1);
  EXPECT_EQ(config_of("zb-1.5B-1F1B-m24", {}).model.vocab_size, 32000);
}

// A step's seconds at the width 13,824, on one node without a pipeline, with so many heads.
double seconds_with_heads(const char* heads) {
  const DescribedRun run = run_of("bloom-036", {{"layers", "6"},
                                                {"hidden", "13824"},
                                                {"ffn", ""},
                                                {"heads", heads},
                                                {"kv_heads", ""},
                                                {"pp", "1"},
                                                {"dp", "1"},
                                                {"gpus", "8"},
                                                {"gbs", "8"}});
  return seconds_of(run.config, run.machine, run.profile);
}

// 128 heads of 108 columns: 216 bytes, no multiple of 16. Attention's products (two forward, again recomputed, and four
// backward) run on the vector units, at most at 19.5 TFLOP/s where tensor cores do 312. Heads of 128 columns have more
// of them and no such loss.
TEST(SoftwareProfile, HeadsOfOddWidthMissTheTensorCores) {
  constexpr double S = 2048, microbatches = 2, sequences = 4, layers = 6, heads = 128.0 / 8;
  const double flops = microbatches * layers * 8 * sequences * heads * 2 * S * S * 108;
  const double lost = seconds_with_heads("128") - seconds_with_heads("108");
  EXPECT_GT(lost, 0.9 * flops / 19.5e12);
  EXPECT_LT(lost, 2 * flops / 19.5e12);
  EXPECT_NEAR(seconds_with_heads("108") / seconds_with_heads("96"), 1, 0.02);
}

// What software reaches is a share of what the machine's file says, the same on every GPU. Kernels older than Hopper
// reach less of its rate for attention.
TEST(SoftwareProfile, ReachesTheSameShareOfEveryMachine) {
  struct Shares {
    double matmul, attention, memory;
  };
  const auto reached = [](std::string_view name, const char* shipped) {
    const MachineSpec machine = read_machine(shipped), slower = calibrated(software_profile(name), machine);
    const DeviceSpec &best = machine.nodes.front().device, &device = slower.nodes.front().device;
    const FormatRates &rates = device.formats.at("bfloat16"), &of_best = best.formats.at("bfloat16");
    EXPECT_EQ(device.operation_seconds, 0);
    EXPECT_GT(device.launch_seconds, 0);
    return Shares{rates.matmul.efficiency / of_best.matmul.efficiency,
                  rates.attention_efficiency / of_best.attention_efficiency,
                  device.memory_efficiency / best.memory_efficiency};
  };
  for (const std::string_view name : {"megatron-2022", "llm-foundry", "torchtitan"}) {
    const Shares a100 = reached(name, "a100-80"), h100 = reached(name, "h100");
    EXPECT_DOUBLE_EQ(a100.matmul, h100.matmul);
    EXPECT_DOUBLE_EQ(a100.memory, h100.memory);
    EXPECT_NEAR(h100.attention / a100.attention, 0.35 / 0.65, 1e-9);  // FlashAttention-2 over machines/h100.toml
    for (const double share : {a100.matmul, a100.attention, a100.memory}) {
      EXPECT_GT(share, 0.3);
      EXPECT_LE(share, 1);
    }
  }
  EXPECT_DOUBLE_EQ(reached("megatron-core", "h100").attention, reached("megatron-core", "a100-80").attention);
}

// BLOOM's launcher set CUDA_LAUNCH_BLOCKING=1: the same software that waits for every kernel takes longer.
TEST(SoftwareProfile, AHostThatWaitsForKernelsIsSlower) {
  const DescribedRun run = described_run(row_called("bloom-036"));
  SoftwareProfile ahead = run.profile;
  ASSERT_TRUE(ahead.host.waits_for_kernels);
  ahead.host.waits_for_kernels = false;
  EXPECT_GT(seconds_of(run.config, run.machine, run.profile), 1.02 * seconds_of(run.config, run.machine, ahead));
}

TEST(PublishedRows, WhatCannotBeExpressedGetsASentence) {
  const auto refused = [](const char* column, const char* value) {
    CsvRow row = row_called("mpt-033");
    row.fields[column] = value;
    try {
      (void)described_run(row);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(refused("ep", "2").find("ep = 2 divides experts, but experts = '' (use 1)"), std::string::npos);
  EXPECT_NE(refused("experts", "8").find("experts = 8 with mlp = 'gelu4h'"), std::string::npos);
  EXPECT_NE(refused("cp", "2").find("gpus = 8 is not tp 1 x pp 1 x cp 2 x dp 8 (use 16)"), std::string::npos);
  EXPECT_NE(refused("hidden", "").find("hidden is blank"), std::string::npos);
  EXPECT_NE(refused("gpus", "7").find("gpus = 7"), std::string::npos);
  EXPECT_NE(refused("layers", "many").find("layers = 'many'"), std::string::npos);
  EXPECT_EQ(refused("mbs", ""), "");
  EXPECT_NE(refused("gpu", "").find("gpu is blank"), std::string::npos);
  EXPECT_NE(refused("hidden", "100000000000000").find("(use 2147483647)"), std::string::npos);
  EXPECT_NE(refused("zero", "4").find("(use 3)"), std::string::npos);
  EXPECT_NE(refused("zero", "-1").find("(use 0)"), std::string::npos);
  EXPECT_EQ(refused("zero", "ZeRO-3"), "");
  EXPECT_NE(refused("intra", "NVLink3 (0 GPU node)").find("(use NVLink4 (8 GPU node))"), std::string::npos);
  for (const char* network : {"8x0Gb", "0x400Gb", "99999999999999999999x400Gb"})
    EXPECT_NE(refused("inter_per_node", network).find("(use 8x400Gb)"), std::string::npos) << network;
}

// Liu et al. 2025 (arXiv:2504.14960), table 3: Mixtral 8x22B by Megatron-Core 0.9 with parallel folding, 49.3 % MFU.
// What the source leaves out is filled by a rule.
TEST(PublishedRows, OfAMixtureDivideExpertsOverRanks) {
  CsvRow row = row_with("sc21-t1-145B", {{"params_b", "140.6"},
                                         {"layers", "56"},
                                         {"hidden", "6144"},
                                         {"heads", "48"},
                                         {"kv_heads", "8"},
                                         {"ffn", "16384"},
                                         {"mlp", "swiglu"},
                                         {"vocab", "32000"},
                                         {"seq", "4096"},
                                         {"experts", "8"},
                                         {"topk", "2"},
                                         {"gpu", "H100-80GB-SXM"},
                                         {"gpus", "128"},
                                         {"intra", "NVLink4"},
                                         {"inter_per_node", "8x400Gb"},
                                         {"tp", "2"},
                                         {"etp", "1"},
                                         {"pp", "8"},
                                         {"vpp", ""},
                                         {"dp", "8"},
                                         {"ep", "8"},
                                         {"mbs", ""},
                                         {"gbs", "256"},
                                         {"sp", "1"},
                                         {"recompute", ""},
                                         {"zero", "1"},
                                         {"precision", "bf16"},
                                         {"flash_attn", "1"},
                                         {"schedule", "1F1B or interleaved"},
                                         {"software", "Megatron-Core 0.9"}});
  const DescribedRun run = described_run(row);
  EXPECT_EQ(run.config.model.mixture.num_experts, 8);
  EXPECT_EQ(run.config.parallelism.expert_parallel_degree, 8);
  EXPECT_EQ(run.config.parallelism.virtual_stages, 7);
  EXPECT_NEAR(static_cast<double>(run.config.model.num_parameters()) / 1e9, 140.6, 0.1);
  EXPECT_NEAR(seconds_of(run.config, run.machine, run.profile), 4.209, 0.1 * 4.209);
  EXPECT_EQ(run.config.moe, MoeConfig());
  row.fields["balance"] = "capacity 1";
  const DescribedRun dropping = described_run(row);
  EXPECT_EQ(dropping.config.moe.capacity_factor, 1);
  EXPECT_NEAR(seconds_of(dropping.config, dropping.machine, dropping.profile), 4.209, 0.1 * 4.209);
  row.fields["balance"] = "forced balance";
  EXPECT_TRUE(described_run(row).config.moe.force_balance);
  row.fields["balance"] = "capacity";
  EXPECT_THROW((void)described_run(row), Error);
  row.fields["balance"] = "dropless";
  row.fields["zero"] = row.fields["dist_opt"] = "";
  try {
    (void)described_run(row);
    FAIL() << "experts over ranks that shard nothing";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("zero = '' has them on each (use zero = 1)"), std::string::npos);
  }
  row.fields["zero"] = "1";
  row.fields["recompute"] = "full";
  row.fields["software"] = "Megatron-LM 2022";
  const DescribedRun whole = described_run(row);
  EXPECT_THROW((void)seconds_of(whole.config, whole.machine, whole.profile), Error);
}

// Each word, on a GPU that has all formats and on one that has no bfloat16.
TEST(PublishedRows, KeepTheirPrecision) {
  const auto dtype_of = [](const char* precision, const char* gpu) {
    CsvRow row = row_called("mpt-033");
    row.fields["precision"] = precision;
    row.fields["gpu"] = gpu;
    const TrainingConfig training = described_run(row).config.training;
    if (training.dtype == DType::float16) {
      EXPECT_EQ(training.grad_dtype, DType::float16);
    }
    return training.dtype;
  };
  for (const char* precision : {"fp16", "amp_fp16 DEFAULT", "float16", "half", "16-mixed"})
    EXPECT_EQ(dtype_of(precision, "H100-80GB"), DType::float16) << precision;
  for (const char* precision : {"bf16", "bf16?", "amp_bf16 DEFAULT", "bfloat16", "fp8", "mixed", ""})
    EXPECT_EQ(dtype_of(precision, "H100-80GB"), DType::bfloat16) << precision;
  EXPECT_EQ(dtype_of("fp32", "H100-80GB"), DType::float32);
  EXPECT_EQ(dtype_of("mixed", "V100-32GB"), DType::float16);
  EXPECT_EQ(dtype_of("", "V100-32GB"), DType::float16);
}

// V100's tensor cores do 125 TFLOP/s in float16, its vector units 15.7 in float32, and nothing does bfloat16.
TEST(PublishedRows, OfV100AreTimedInFloat16OrRefused) {
  CsvRow row = row_called("mlm2020-A100-2B-2");
  row.fields["gpu"] = "V100-32GB-SXM3";
  row.fields["gpu_mem_gb"] = "32";
  const auto simulated = [&](const char* precision) {
    row.fields["precision"] = precision;
    const DescribedRun run = described_run(row);
    return simulate_software(Blueprint(run.config), run.machine, {.profile = run.profile});
  };
  const Simulation half = simulated("fp16");
  EXPECT_GT(half.hardware_flops / half.step_seconds / 2, 1.5 * 15.7e12);
  EXPECT_DOUBLE_EQ(half.peak_flops, 2 * 125e12);
  EXPECT_GT(simulated("fp32").step_seconds, 2 * half.step_seconds);
  for (const char* precision : {"bf16", "fp8"}) EXPECT_THROW((void)simulated(precision), Error) << precision;
}

TEST(PublishedRows, WhatIsTakenInsteadOfWhatARowSaysIsSaid) {
  const auto assumed = [](const std::map<std::string, std::string>& fields) {
    CsvRow row = row_called("bloom-036");  // 12 pipeline ranks, 4 data-parallel ones, microbatches of 4
    for (const auto& [column, value] : fields) row.fields[column] = value;
    std::string all;
    for (const std::string& sentence : assumptions_of(row, described_run(row))) all += sentence + "\n";
    return all;
  };
  for (const CsvRow& row : rows()) {
    const bool names_no_bandwidth = row.at("inter_per_node") == "RoCE RDMA";
    EXPECT_EQ(assumptions_of(row, described_run(row)).size(), names_no_bandwidth ? 1U : 0U) << row.at("id");
  }
  EXPECT_EQ(assumed({{"schedule", "foo"}}), "schedule = 'foo' is not known; 1F1B is taken\n");
  EXPECT_EQ(assumed({{"schedule", "foo"}, {"pp", "1"}, {"gpus", "32"}}), "");  // it does not matter there
  try {
    (void)assumed({{"precision", "int4"}});
    FAIL() << "a row in int4 was timed as another format";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "precision = 'int4' is not a format of rows (use bf16, fp16, fp32 or fp8)");
  }
  EXPECT_EQ(assumed({{"gbs", "2049"}}),
            "gbs = '2049' is not a multiple of 4 data-parallel ranks x microbatches of 4; 2048 is taken\n");
  EXPECT_EQ(assumed({{"mbs", "1000"}}),
            "mbs = '1000' is more than the sequences of a data-parallel rank; 512 is taken\n");
  EXPECT_EQ(assumed({{"foo", "1"}}), "foo = '1' is in a column that is not known; nothing is read from it\n");
  EXPECT_EQ(assumed({{"foo", ""}, {"tok_s_gpu", "1"}}), "");
  EXPECT_EQ(assumed({{"kv_heads", "0"}}), "kv_heads = 0 is read as blank\n");
  EXPECT_EQ(assumed({{"software", "JAX"}}).substr(0, 26), "software = 'JAX' is not kn");
  EXPECT_EQ(assumed({{"software", "Echelon"}}), "");
}

// PyTorch's pipelines with FSDP hold a stage's gradients whole in 32 bits, and every microbatch's output; a compiled
// loss holds the logits and their gradient alone.
TEST(SoftwareMemory, OfPyTorch) {
  CsvRow row = row_called("titan-8b-64-bf16-async");
  const auto memory_of = [&](bool compiles_loss) {
    DescribedRun run = described_run(row);
    run.profile.compiles_loss = compiles_loss;
    return simulate_software(Blueprint(run.config), run.machine, {.profile = run.profile}).memory;
  };
  for (const auto& [column, value] :
       std::map<std::string, std::string>{{"pp", "2"}, {"dp", "4"}, {"mbs", "1"}, {"gbs", "32"}})
    row.fields[column] = value;
  const std::vector<PredictedMemory> memory = memory_of(false);
  const std::int64_t sharded = memory.front().category_bytes.at(MemoryCategory::master_weights);
  EXPECT_GE(memory.front().category_bytes.at(MemoryCategory::gradients), 4 * sharded);
  const std::int64_t logits = 8192 * 128256 / 8;
  EXPECT_GE(memory.back().category_bytes.at(MemoryCategory::boundaries), 8 * 2 * logits);
  // A loss over a vocabulary that is cut is not compiled.
  EXPECT_EQ(memory_of(true).back().arena_bytes, memory.back().arena_bytes);

  for (const auto& [column, value] :
       std::map<std::string, std::string>{{"tp", "1"}, {"pp", "1"}, {"dp", "64"}, {"sp", "0"}, {"gbs", "64"}})
    row.fields[column] = value;
  EXPECT_EQ(memory_of(false).front().arena_bytes - memory_of(true).front().arena_bytes,
            std::int64_t{8} * 8192 * 128256);
}

// Korthikanti et al. 2022, section 4: s b h (34 + 5 a s / h) bytes a layer without parallelism, s b h (10 + 24 / t + 5
// a s / (h t)) over t ranks.
TEST(SoftwareMemory, OfABlockIsTheFormula) {
  const SoftwareProfile profile = software_profile("megatron-2022");
  RunConfig config = described_run(row_called("kort-t5-22B-full")).config;
  const std::int64_t s = 2048, b = 4, h = 6144, a = 64, t = 8;
  EXPECT_EQ(kept_block_bytes(profile, config, {}), 10 * s * b * h + 24 * s * b * h / t + 5 * a * s * s * b / t);
  EXPECT_EQ(kept_block_bytes(profile, config, whole_block), 2 * s * b * h);
  config.parallelism.sequence_parallel = true;
  EXPECT_EQ(kept_block_bytes(profile, config, {BlockOperation::core_attn}), 34 * s * b * h / t);
  config.parallelism.sequence_parallel = false;
  config.parallelism.tensor_parallel_degree = 1;
  EXPECT_EQ(kept_block_bytes(profile, config, {}), 34 * s * b * h + 5 * a * s * s * b);
}

}  // namespace
}  // namespace echelon
