// Ollama's API.
#pragma once

#include "openai.h"

namespace forge::server {

Translated ollama_chat(const Json& body);
Translated ollama_generate(const Json& body);
// "5m", "-1", 300, "1h30m" -> seconds; negative: for ever. ApiError names keep_alive.
double seconds_of(const Json& value);
Json ollama_error(const ApiError& error);

}  // namespace forge::server
