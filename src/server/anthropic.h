// Anthropic's messages API.
#pragma once

#include "openai.h"

namespace forge::server {

Translated anthropic_messages(const Json& body, bool count_only = false);
Json anthropic_error(const ApiError& error);

}  // namespace forge::server
