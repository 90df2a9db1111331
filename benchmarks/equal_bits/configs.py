"""The compared configs, one per line: name, how the ranks run, and what differs from BASIS.

Ranks are threads, processes (mpi), threads that share an emulated GPU (gpu), or threads with an emulated GPU each
(gpus). A word in capitals is an environment variable. `generate` also compares the text that the trained model writes.
A `verb` trains nothing: the answer of the command is compared, number by number.
"""

import dataclasses
import math

TABLE = """
gpt2                  threads  family=gpt2 generate
gpt2-tied             threads  family=gpt2 tied=true tp=2 dtype=bfloat16 remainders=true
llama                 threads  generate
llama-tied            threads  tied=true pp=2
llama-rope            threads  model.rope_scaling.rope_type=llama3 model.rope_scaling.factor=8 model.rope_theta=5e5
qwen2                 threads  family=qwen2 tp=2 generate
qwen2-tied            threads  family=qwen2 tied=true shard=2 zero=3
qwen3                 threads  family=qwen3 head_dim=12 generate
qwen3-tp-sp           threads  family=qwen3 head_dim=12 tp=4 sp=true tied=true
own-products          threads  ECHELON_FLOAT32_PRODUCTS=own tp=2
two-threads           threads  threads=2 mbs=2 documents=true

float64               threads  dtype=float64 tp=2 pp=2
bfloat16              threads  dtype=bfloat16 tp=2 sp=true
bfloat16-native       threads  dtype=bfloat16 ECHELON_BFLOAT16_PRODUCTS=native shard=2 zero=3
bfloat16-gradients    threads  dtype=bfloat16 grad=bfloat16 shard=2 zero=2
bfloat16-all          threads  dtype=bfloat16 grad=bfloat16 moments=bfloat16 remainders=true shard=2 zero=3 pp=2
bfloat16-moments      threads  dtype=bfloat16 moments=bfloat16 replicate=2 shard=2
float32-moments-bf16  threads  moments=bfloat16 shard=2 zero=1
reduce-bfloat16       threads  reduce=bfloat16 shard=4 zero=2
remainders            threads  dtype=bfloat16 remainders=true replicate=2 shard=2 tp=2
float16               threads  dtype=float16 scale=1e8 backoff=1e-3 growth=1 pp=2
float16-zero3         threads  dtype=float16 scale=65536 growth=1 shard=2 zero=3 reshard=never tp=2
float8                threads  dtype=bfloat16 linear=float8 tp=2 sp=true hidden=128 inner=96
float8-float16        threads  dtype=float16 linear=float8 scale=1024 shard=2 pp=2 hidden=128 inner=96
logits-bfloat16       threads  dtype=bfloat16 logits=bfloat16 chunk=16 tp=2 mbs=2
vocabulary-padded     threads  padding=64 tp=2 pp=2 tied=true

naive                 threads  pp=2 schedule=naive
gpipe                 threads  pp=4 schedule=GPipe layers=6
1f1b                  threads  pp=4 schedule=1F1B layers=6 gbs=7
1f1b-layout           threads  pp=3 schedule=1F1B layers=7 layout=[1,5,1] shard=2 zero=3 reshard=step
interleaved           threads  pp=2 schedule=Interleaved1F1B v=2 shard=2 zero=2 tied=true
interleaved-sp        threads  pp=2 schedule=Interleaved1F1B v=2 tp=2 sp=true documents=true
looped-bfs            threads  pp=2 schedule=LoopedBFS v=2 layers=5
interleaved-zb        threads  pp=2 schedule=InterleavedZeroBubble v=2 shard=2 zero=3 reshard=never
zb-h1                 threads  pp=4 schedule=ZB-H1 recompute=full
zb-h2                 threads  pp=2 schedule=ZB-H2 tp=2 replicate=2
zb-1p                 threads  pp=2 schedule=ZB-1p gbs=6
zb-2p                 threads  pp=4 schedule=ZB-2p family=gpt2
zb-v                  threads  pp=2 schedule=ZB-V tied=true shard=2 zero=2
zb-v-documents        threads  pp=2 schedule=ZB-V tp=2 documents=true dtype=bfloat16
dualpipe-v            threads  pp=2 schedule=DualPipeV replicate=2 layers=5 tied=true
csv-schedule          threads  pp=2 csv=schedule.csv gbs=3

zero0                 threads  replicate=4
zero1                 threads  shard=4 zero=1
zero1-replicas        threads  replicate=2 shard=3 zero=1 gbs=12
zero2                 threads  shard=4 zero=2 family=gpt2
zero3                 threads  shard=4 zero=3 reshard=microbatch
zero3-never           threads  shard=2 zero=3 reshard=never family=qwen3
zero3-step            threads  shard=4 zero=3 reshard=step tied=true
zero3-replicas        threads  replicate=2 shard=2 zero=3 reshard=step tp=2
zero3-one-rank        threads  zero=3 mbs=2

recompute-selective   threads  recompute=selective tp=2 sp=true
recompute-full        threads  recompute=full pp=2
recompute-block       threads  recompute=full recompute_method=block recompute_layers=1 pp=2
recompute-qkv         threads  recompute=["qkv_proj"] shard=2
recompute-qk-norm     threads  recompute=["qk_norm"] family=qwen3 tp=2
recompute-core        threads  recompute=["core_attn"] documents=true
recompute-o-proj      threads  recompute=["o_proj"] family=gpt2 tp=2
recompute-mlp         threads  recompute=["mlp"] pp=2 schedule=ZB-H1
recompute-float8      threads  recompute=["core_attn","mlp"] dtype=bfloat16 linear=float8 tp=2 hidden=128 inner=96

tp                    threads  tp=4 sp=false family=gpt2
tp-sp                 threads  tp=8 sp=true tied=true
tp-uneven             threads  tp=3 heads=7 kv=7 hidden=56 inner=45 gbs=6
tp-uneven-sp          threads  tp=3 heads=7 kv=7 hidden=56 inner=45 gbs=6 sp=true pp=2 seq=33
documents             threads  documents=true mbs=4 pp=2
no-clipping           threads  max_norm=0 decay=wsd tp=2
all-axes              threads  replicate=2 tp=2 sp=true pp=2 documents=true
all-axes-zero3        threads  shard=2 zero=3 tp=2 sp=true pp=2 schedule=ZB-V tied=true recompute=selective
order                 threads  shard=2 tp=2 pp=2 order=pp-dp-cp-tp
order-2               threads  replicate=2 shard=2 tp=2 order=["dp_shard","tp","dp_replicate","pp","cp"] zero=2

mpi-all-axes          mpi      shard=2 zero=3 tp=2 sp=true pp=2 documents=true
mpi-bfloat16          mpi      dtype=bfloat16 replicate=2 shard=2 zero=2 remainders=true
mpi-pipeline          mpi      pp=4 schedule=ZB-H1 tied=true
mpi-tensor            mpi      tp=4 sp=true family=gpt2

gpu                   gpu
gpu-gpt2-graphs       gpu      family=gpt2 graphs=true
gpu-bfloat16          gpu      dtype=bfloat16 grad=bfloat16 moments=bfloat16 remainders=true
gpu-float16           gpu      dtype=float16 scale=1e8 backoff=1e-3 growth=1 tied=true
gpu-float8            gpu      dtype=bfloat16 linear=float8 tp=2 hidden=64 inner=64
gpu-float8-graphs     gpu      dtype=bfloat16 linear=float8 recompute=full graphs=true hidden=64 inner=64
gpu-zero3             gpu      shard=2 zero=3 reshard=never family=qwen3
gpu-pipeline          gpu      pp=2 schedule=ZB-V tied=true layers=5
gpu-all-axes          gpu      shard=2 zero=2 tp=2 sp=true pp=2 documents=true
gpu-recompute         gpu      recompute=full family=qwen2 tp=2
gpus-zero3-graphs     gpus     shard=2 zero=3 graphs=true tied=true
gpus-bfloat16         gpus     dtype=bfloat16 grad=bfloat16 tp=2 sp=true graphs=true family=gpt2
gpus-pipeline         gpus     pp=2 schedule=ZB-V layers=4 dtype=float16 scale=1024

simulate-405b         verb     simulate examples/textbook/llama3-405b.toml --machine=h100
simulate-405b-zero3   verb     simulate examples/textbook/llama3-405b.toml --machine=h100 --parallelism.zero_level=3
simulate-70b          verb     simulate examples/textbook/llama3-70b.toml --machine=h100 --training.recompute=selective
simulate-mtnlg        verb     simulate examples/textbook/mtnlg-530b.toml --machine=a100-80 --profile=megatron-2021
simulate-async-tp     verb     simulate examples/textbook/llama3-70b.toml --machine=h100 --profile=torchtitan+async-tp
simulate-slow-rank    verb     simulate examples/textbook/llama3-70b.toml --machine=h100 --slow rank=17:1.3
plan-gpt3-175b        verb     plan --model=gpt3-175b --machine=a100-80 --gpus=4096 --global-batch-size=4096
plan-llama3-8b        verb     plan --model=llama3-8b --machine=h100 --gpus=16 --global-batch-size=64 --seq-len=8192
plan-memory           verb     plan --model=llama3-8b --machine=h100 --gpus=8 --global-batch-size=16 --objective=memory
inspect-405b          verb     inspect examples/textbook/llama3-405b.toml
inspect-175b          verb     inspect examples/textbook/gpt3-175b.toml
draw-zb-2p            verb     draw --schedule=ZB-2p --stages=8 --microbatches=24 --p2p-ms=0.1
"""

KEYS = {
    "family": "model.model_type", "hidden": "model.hidden_size", "layers": "model.num_hidden_layers",
    "heads": "model.num_attention_heads", "kv": "model.num_key_value_heads", "head_dim": "model.head_dim",
    "inner": "model.intermediate_size", "tied": "model.tie_word_embeddings", "documents": "data.reset_attention_mask",
    "seq": "training.seq_len", "gbs": "training.global_batch_size", "mbs": "training.micro_batch_size",
    "dtype": "training.dtype", "linear": "training.linear_dtype", "grad": "training.grad_dtype",
    "reduce": "training.reduce_dtype", "logits": "training.logits_dtype", "chunk": "training.head_chunk_tokens",
    "padding": "training.make_vocab_size_divisible_by", "max_norm": "training.max_norm",
    "recompute": "training.recompute", "recompute_method": "training.recompute_method",
    "recompute_layers": "training.recompute_num_layers", "graphs": "training.cuda_graphs",
    "threads": "training.num_threads", "replicate": "parallelism.data_parallel_replicate_degree",
    "shard": "parallelism.data_parallel_shard_degree", "zero": "parallelism.zero_level",
    "reshard": "parallelism.reshard_after_forward", "tp": "parallelism.tensor_parallel_degree",
    "sp": "parallelism.sequence_parallel", "pp": "parallelism.pipeline_parallel_degree",
    "schedule": "parallelism.pipeline_parallel_schedule", "csv": "parallelism.pipeline_parallel_schedule_csv",
    "layout": "parallelism.pipeline_parallel_layout", "v": "parallelism.virtual_stages", "order": "parallelism.order",
    "moments": "optimizer.moments_dtype", "remainders": "optimizer.store_param_remainders",
    "decay": "lr_scheduler.decay", "scale": "grad_scaler.init_scale", "growth": "grad_scaler.growth_interval",
    "backoff": "grad_scaler.backoff_factor",
}  # fmt: skip

# Weights and rates so large that every step moves every weight, in two-byte formats too.
BASIS = """
    family=llama hidden=64 layers=4 heads=8 kv=2 inner=90 model.vocab_size=509 model.max_position_embeddings=64
    model.initializer_range=0.1 seq=32 gbs=8 training.steps=4 training.eval_interval=3 training.eval_batches=1
    optimizer.lr=1e-2 lr_scheduler.warmup_steps=1 lr_scheduler.min_lr_factor=0.2 training.device=cpu
"""
OF_GPU = "training.device=cuda hidden=32 layers=2 heads=4 inner=45 seq=16 gbs=4 training.steps=2"  # it is slow
SCHEDULE_CSV = "0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2,\n"  # a 1F1B of three microbatches on two ranks


@dataclasses.dataclass
class Config:
    name: str
    launch: str
    options: dict  # by the full name of the key
    environment: dict
    generates: bool
    verb: list  # the command of a verb

    def is_on_gpus(self):
        return self.launch in ("gpu", "gpus")

    def num_ranks(self):
        degrees = ("replicate", "shard", "tp", "pp")
        return math.prod(int(self.options.get(KEYS[degree], 1)) for degree in degrees)


def all_configs():
    return [parse(*line.split(None, 2)) for line in TABLE.splitlines() if line]


def parse(name, launch, words=""):
    if launch == "verb":
        return Config(name, launch, {}, {}, False, [*words.split(), "--json"])
    is_slow = launch in ("gpu", "gpus")
    words = [*BASIS.split(), *(OF_GPU.split() if is_slow else []), *words.split()]
    options, environment = {}, {"ECHELON_BFLOAT16_PRODUCTS": "widened"}  # a base may measure which kernels are faster
    for word in words:
        key, _, value = word.partition("=")
        if key.isupper():
            environment[key] = value
        elif value:
            options[KEYS.get(key, key)] = value
    if options["model.model_type"] == "gpt2":
        del options["model.num_key_value_heads"]
    return Config(name, launch, options, environment, "generate" in words, [])
