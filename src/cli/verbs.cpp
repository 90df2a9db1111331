#include "cli/verb.h"

namespace echelon {
namespace {

constexpr Verb all_verbs[] = {
    {.name = "draw", .summary = "a pipeline schedule as text", .declare = declare_draw},
};

}  // namespace

std::span<const Verb> verbs() { return all_verbs; }

}  // namespace echelon
