// echelon generate --chat: a conversation with a saved model.
#pragma once

#include "cli/command.h"
#include "engine/generation/generate.h"

#include <string>

namespace echelon {

/// Each line of standard input that is not empty, or the prompt if there is one, is a message of a user. `given` is as
/// for chat_templates_of. Throws Error as generate, and if the template refuses the conversation.
ExitStatus run_chat(GenerateOptions options, const std::string& given, bool json);

/// What `echelon generate --json` prints.
void print_json(const std::string& prompt, const Generation& generation);

}  // namespace echelon
