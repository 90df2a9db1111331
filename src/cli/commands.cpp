#include "cli/command.h"

namespace echelon {
namespace {

constexpr Command all_commands[] = {
    {.name = "prepare", .summary = "text to a tokenizer and token files", .declare = declare_prepare},
    {.name = "train",
     .summary = "train a model from a config",
     .takes_config = true,
     .runs_in_processes = true,
     .declare = declare_train},
    {.name = "verify",
     .summary = "a layout against one rank, tensor by tensor",
     .takes_config = true,
     .declare = declare_verify},
    {.name = "eval",
     .summary = "the loss of a saved model on prepared text",
     .takes_config = true,
     .runs_in_processes = true,
     .declare = declare_eval},
    {.name = "generate",
     .summary = "text out of a saved model",
     .runs_in_processes = true,
     .why_no_config = " (it runs without context, tensor and pipeline parallelism; ranks divide experts alone: "
                      "--expert-parallel; echelon eval uses all layouts)",
     .declare = declare_generate},
    {.name = "convert", .summary = "a checkpoint to a Hugging Face folder", .declare = declare_convert},
    {.name = "inspect",
     .summary = "describe a model folder, a checkpoint, token files or a config",
     .takes_config = true,
     .declare = declare_inspect},
    {.name = "plan",
     .summary = "the best layouts of a model on a cluster",
     .takes_config = true,
     .declare = declare_plan},
    {.name = "tune",
     .summary = "run the best few layouts here, learn from them and rank again",
     .takes_config = true,
     .declare = declare_tune},
    {.name = "simulate",
     .summary = "the time and memory of a step on a cluster, without running it",
     .takes_config = true,
     .declare = declare_simulate},
    {.name = "draw", .summary = "a pipeline schedule as text", .declare = declare_draw},
    {.name = "bench",
     .summary = "measure this machine's cores and memory",
     .runs_in_processes = true,
     .declare = declare_bench},
};

}  // namespace

std::span<const Command> commands() { return all_commands; }

}  // namespace echelon
