// Ollama's API.
#pragma once

#include "openai.h"

namespace forge::server {

Translated ollama_chat(const Json& body);
Translated ollama_generate(const Json& body);
Json ollama_error(const ApiError& error);

}  // namespace forge::server
